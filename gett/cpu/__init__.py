"""The NumPy executor: runs a `GemmPlan` on NumPy arrays, BLAS inside, with no GPU and no transposed copies.

`views` builds views from plan strides, `arithmetic` knows dtypes, `blas` its threads. `core` picks the matrix product
inside the plan. `boxes` sizes the `tiles`, `moving` packs and scatters, `threads` shares the tiles out. `executable`
puts them together. Knows no CuPy.
"""

from __future__ import annotations

from gett.cpu.executable import NumpyExecutable

__all__ = ["NumpyExecutable"]
