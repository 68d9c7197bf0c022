"""BaPipe: balanced pipeline partitions, schedules and proofs for training on several accelerators."""
