"""Epilogues: a function of a contraction's result and of further tensors, applied where the result is stored.

Knows NumPy and neither plans nor kernels.
"""
