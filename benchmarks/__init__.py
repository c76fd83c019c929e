"""Comparison benchmarks: gett beside its rivals, in one run, on one machine."""
