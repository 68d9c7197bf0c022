"""The bottleneck as a mixed-integer program in PuLP, the twin of the CP-SAT model: `solve` runs the `model`."""
