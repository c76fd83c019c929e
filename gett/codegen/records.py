"""What code generation hands to compilation and to the launch: text, and packed arguments with open slots.

Knows neither CuPy nor a driver. A kernel takes one struct by value; everything in it that a plan fixes is packed here,
once, and the runtime fills in addresses (and alpha, beta) at each call.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KernelSource:
    """Text of one generated translation unit.

    Attributes:
        text: CUDA C++: includes of files in `gett/kernels`, traits, index functions, entries.
        entries: Names of the `extern "C"` kernels in it.
    """

    text: str
    entries: tuple[str, ...]


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
    """One kernel launch.

    Attributes:
        entry: Kernel name.
        grid, block: In blocks and threads.
        smem_bytes: Dynamic shared memory.
        params: The struct argument, slots zeroed.
        pointers: (role, byte offset) of 8-byte address slots; roles are `a`, `b`, `c`, `d` of the *plan* (after its
            swap), `workspace`, and `x0`, `x1`, ... of the tensors that an epilogue's function reads.
        maps: (role, byte offset, descriptor) of 128-byte tensor-map slots.
        scalars: (`"alpha"` or `"beta"`, byte offset, NumPy dtype name in which the kernel takes it).
        moved: (role, base, bytes) of roles whose tensor lies that far behind the address of another role, or of itself:
            copies in the workspace, pieces of tensors.
        overlaps: Whether its blocks may start while the launch before it ends; the kernel itself waits for the results
            of that launch (`griddepcontrol.wait`, from sm_90 on).
    """

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem_bytes: int
    params: bytes
    pointers: tuple[tuple[str, int], ...]
    maps: tuple[tuple[str, int, TensorMapSpec], ...] = ()
    scalars: tuple[tuple[str, int, str], ...] = ()
    overlaps: bool = False
    moved: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Kernel:
    """Everything that runs one plan: the source and the launches, in stream order.

    Attributes:
        source: To compile for `arch`.
        arch: Such as `"sm_90a"`.
        launches: In order.
        workspace_bytes: Device memory needed during the call (split-K partial sums, packed copies).
    """

    source: KernelSource
    arch: str
    launches: tuple[Launch, ...]
    workspace_bytes: int = 0
