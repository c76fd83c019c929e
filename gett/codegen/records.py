"""What code generation hands to compilation and to the launch: text, and packed arguments with open slots.

Knows neither CuPy nor a driver. A kernel takes one struct by value; everything in it that a plan fixes is packed here,
once, and the runtime fills in addresses (and alpha, beta) at each call.
"""

from __future__ import annotations

from dataclasses import dataclass

from gett.hw.archs import capability


@dataclass(frozen=True, slots=True)
class KernelSource:
    """Text of one generated translation unit."""

    text: str  # CUDA C++: includes of files in `gett/kernels`, traits, index functions, entries
    entries: tuple[str, ...]  # names of the `extern "C"` kernels in it


@dataclass(frozen=True, slots=True)
class TensorMapSpec:
    """A TMA descriptor to encode for one operand; dimensions fastest first, strides in bytes of dimensions 1...

    `data_type`, `swizzle`, `l2_promotion` and `fill` are the driver's enumeration values.
    """

    data_type: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    l2_promotion: int
    fill: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch."""

    entry: str  # kernel name
    grid: tuple[int, int, int]  # in blocks and threads
    block: tuple[int, int, int]
    smem_bytes: int  # dynamic shared memory
    params: bytes  # the struct argument, slots zeroed
    # (role, byte offset) of 8-byte address slots; roles are `a`, `b`, `c`, `d` of the *plan* (after its swap),
    # `workspace`, and `x0`, `x1`, ... of the tensors that an epilogue's function reads.
    pointers: tuple[tuple[str, int], ...]
    # (role, byte offset, descriptor) of 128-byte tensor-map slots.
    maps: tuple[tuple[str, int, TensorMapSpec], ...] = ()
    # (`"alpha"` or `"beta"`, byte offset, NumPy dtype name in which the kernel takes it).
    scalars: tuple[tuple[str, int, str], ...] = ()
    # (role, base, bytes) of roles whose tensor lies that far behind the address of another role, or of itself: copies
    # in the workspace, pieces of tensors.
    moved: tuple[tuple[str, str, int], ...] = ()
    cache_bytes: int = 0  # of an SM's first cache that the kernel's copies need; 0 where that does not matter


@dataclass(frozen=True, slots=True)
class Kernel:
    """Everything that runs one plan: the source and the launches, in stream order."""

    source: KernelSource  # to compile for `arch`
    arch: str  # such as `"sm_90a"`
    launches: tuple[Launch, ...]  # in order
    workspace_bytes: int = 0  # device memory needed during the call (split-K partial sums, packed copies)

    @property
    def overlaps(self) -> bool:
        """Whether launches may start while the one ahead of them in the stream ends, be it gett's or not.

        From sm_90 on, every kernel waits for that one's end (`griddepcontrol.wait`) before it reads or writes.
        """
        return capability(self.arch) >= (9, 0)
