"""An executable that works on tensors from given bytes of theirs on: one launch's share of a larger contraction.

Knows addresses only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gett.runtime.executable import GpuExecutable


class _Address:
    """What an executable reads of an array."""

    __slots__ = ("ptr",)

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr

    @property
    def data(self) -> _Address:
        return self


class ShiftedExecutable:
    """`GpuExecutable` at other addresses.

    Args:
        inner: What runs.
        offsets: Bytes from the address of each tensor (a, b, c, d, then the epilogue's) to where it begins.
    """

    def __init__(self, inner: GpuExecutable, offsets: Sequence[int]) -> None:
        self._inner, self._offsets, self._extra_offsets = inner, tuple(offsets[:4]), tuple(offsets[4:])
        self.schedule, self.measured, self.device = inner.schedule, inner.measured, inner.device
        self.workspace_bytes = inner.workspace_bytes

    def __call__(
        self, a: Any, b: Any, c: Any, d: Any, alpha: complex = 1, beta: complex = 0, extras: Sequence[Any] = ()
    ) -> None:
        """As `GpuExecutable`'s, on whole arrays."""
        whole = zip((a, b, c, d), self._offsets, strict=True)
        a, b, c, d = (None if x is None else _Address(x.data.ptr + by) for x, by in whole)
        further = [_Address(x.data.ptr + by) for x, by in zip(extras, self._extra_offsets, strict=True)]
        self._inner(a, b, c, d, alpha, beta, further)

    def run_at(
        self,
        a: int,
        b: int,
        c: int,
        d: int,
        stream: int,
        workspace: int,
        alpha: complex = 1,
        beta: complex = 0,
        extras: Sequence[int] = (),
    ) -> None:
        """As `GpuExecutable.run_at`, at the addresses of whole arrays."""
        a, b, c, d = (x and x + by for x, by in zip((a, b, c, d), self._offsets, strict=True))
        extras = [x + by for x, by in zip(extras, self._extra_offsets, strict=True)]
        self._inner.run_at(a, b, c, d, stream, workspace, alpha, beta, extras)
