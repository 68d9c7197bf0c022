"""Reference networks, each as a `LayeredModel`, at full and at tiny size, with synthetic data and its loss.

Every module of a network has the same factories, which a command line names as `bapipe_executor.models.gpt2:tiny`:

| Name | What it makes |
|---|---|
| `full()`, `tiny()` | the network: the same parameters every time, for the same `seed` |
| `full_data(batch_size)`, `tiny_data(batch_size)` | batches of random samples, the same for the same `seed` |
| `loss()` | its loss, the mean over what counts |

The tiny networks have no dropout, so that they are the same function however they are cut, and run in 64 bits after
`.double()`. `llama.full` is a network that no machine holds: make it under `torch.device("meta")`.
"""
