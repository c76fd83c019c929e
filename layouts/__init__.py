"""Layouts: how strided modes are fused, cut into boxes, laid out in shared memory, and moved by tensor maps.

Knows neither einsum nor CUDA: extents, strides and bytes only. Imports nothing but the standard library.
"""
