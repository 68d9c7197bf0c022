"""Measurements of speed, run by `make bench`; correctness is the tests' affair."""
