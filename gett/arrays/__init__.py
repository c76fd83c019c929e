"""Arrays of each library behind one interface: NumPy, CuPy, PyTorch, JAX, and what only exports its memory."""
