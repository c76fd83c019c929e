"""Measured schedules: the autotuner, and the store that remembers schedules between processes."""
