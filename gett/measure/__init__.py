"""How long a call takes and whether its result is right: for the tuner, the commands and the benchmarks."""
