"""What the executor's tests share: plans by hand, orders of torch, long-lived workers, and training in one process."""
