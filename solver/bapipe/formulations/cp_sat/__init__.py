"""The bottleneck by CP-SAT, of OR-Tools: `solve` runs the `model`. Imported when it is used: OR-Tools takes a while."""
