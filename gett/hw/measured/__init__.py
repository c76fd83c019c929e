"""Measured devices: a module each with its record as `MODEL`, written by `python -m benchmarks calibrate`."""
