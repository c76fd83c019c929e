"""The launches of a plan as one CUDA graph, and the memory that it runs on."""
