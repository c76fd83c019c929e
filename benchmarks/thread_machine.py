"""What a thread's contraction is made of, and the machine that it runs on: PyTorch, and CuPy on a GPU."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Call = Callable[[], Any]


@dataclass
class Case:
    """One thread's contraction.

    Attributes:
        name: Short, the key of the record.
        threads: Where it was reported, as `owner/repository#number`.
        what: The contraction in words.
        calls: By name, gett's first; the first call's result is checked.
        reference: Exact values, or pairs of a part of the result and its exact values.
        flop: Of one call, 0 where it is bound by memory.
        moved: Bytes that have to be read and written.
        tolerance: Largest difference over the largest value; 0 where all sums are exact.
        notes: What else is recorded.
        memory: Whether the peak of memory is measured as well.
        cutensor: Subscripts and operands for cuTENSOR's five algorithms, where it takes them in this process.
    """

    name: str
    threads: tuple[str, ...]
    what: str
    calls: dict[str, Call]
    reference: Callable[[Any], float]
    flop: float = 0.0
    moved: float = 0.0
    tolerance: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)
    memory: bool = False
    cutensor: tuple[str, Any, Any] | None = None


class Machine:
    """PyTorch on a GPU or on the processor, and CuPy beside it where there is a GPU."""

    def __init__(self, on_gpu: bool) -> None:
        self.torch = importlib.import_module("torch")
        self.on_gpu = on_gpu
        self.device = "cuda" if on_gpu else "cpu"
        self.cupy: Any = None
        if on_gpu:
            self.cupy = importlib.import_module("cupy")

    def size(self, large: int, small: int) -> int:
        """An extent: the thread's on a GPU, a small one on the processor."""
        return large if self.on_gpu else small

    def integers(self, *shape: int, dtype: str = "float64", seed: int = 0) -> Any:
        """Integers from -2 to 2; of a complex dtype, the imaginary part as well."""
        torch = self.torch
        generator = torch.Generator(device=self.device)
        generator.manual_seed(seed + 1)
        kind = getattr(torch, dtype)

        def draw() -> Any:
            narrow = torch.randint(-2, 3, shape, generator=generator, device=self.device, dtype=torch.int8)
            return narrow.to(torch.float64 if kind in (torch.float64, torch.complex128) else torch.float32)

        if kind.is_complex:
            return torch.complex(draw(), draw())
        return draw().to(kind)

    def to_cupy(self, x: Any) -> Any:
        """The same memory as a CuPy array."""
        return self.cupy.from_dlpack(x.detach())

    def synchronize(self) -> None:
        """Wait for the GPU."""
        if self.on_gpu:
            self.torch.cuda.synchronize()

    def free(self) -> None:
        """Give memory back to the driver."""
        gc.collect()
        if self.on_gpu:
            self.torch.cuda.empty_cache()
            self.cupy.get_default_memory_pool().free_all_blocks()

    def peak_bytes(self, call: Call) -> int:
        """Device memory that a call takes at its peak, its result among it."""
        self.free()
        pool, cuda = self.cupy.get_default_memory_pool(), self.torch.cuda
        reserved, allocated = pool.total_bytes(), cuda.memory_allocated()
        cuda.reset_peak_memory_stats()
        result = call()
        self.synchronize()
        peak = pool.total_bytes() - reserved + cuda.max_memory_allocated() - allocated
        del result
        return int(peak)


def equal_to(expected: Callable[[], Any]) -> Callable[[Any], float]:
    """The largest difference of a result from what is expected, over the largest value."""

    def compare(result: Any) -> float:
        want = expected()
        got = result if hasattr(result, "detach") else importlib.import_module("torch").from_dlpack(result)
        wide = want.dtype
        scale = float(want.abs().max()) or 1.0
        assert got.shape == want.shape, (got.shape, want.shape)
        return float((got.to(wide) - want).abs().max()) / scale

    return compare
