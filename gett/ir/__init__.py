"""What is computed, before any tile: subscripts, tensors, a `Contraction`, and its `GemmPlan`. Knows no device."""
