"""What each architecture offers: the numbers that hard limits and the cost model are built from. Data only.

One representative GPU stands for each architecture, so that plans and schedules can be made where there is no GPU.
`gett.runtime.device` replaces the counts by those of the device at hand. Knows neither plans, kernels nor CuPy.

Sources: limits of an SM and lanes per clock are from the CUDA C++ Programming Guide (compute capabilities; throughput
of native arithmetic instructions). Counts, clocks and tensor rates are from NVIDIA's data sheets (dense, without
sparsity). DRAM rates are what a large copy reaches, bytes read plus bytes written. The H200's was measured; elsewhere
it is 0.885 of the data sheet's rate, the H200's own share. L2 rates are estimates. Links between GPUs are NVLink at
0.82 of the data sheet's rate, what kernels that store to the other of two H200 reached; elsewhere PCI Express 4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from gett.errors import ScheduleError

KIB = 1024
MIB = 1 << 20
_SMEM_SIZES = tuple(x * KIB for x in (8, 16, 32, 64, 100, 132, 164, 196, 228))
"""Sizes that the shared memory of an SM takes, as far as it has so much (compute capabilities 8.0 to 12.0)."""
_CACHE_ALONE = 28 * KIB  # of what an SM's first cache and its shared memory have together, the first cache's at least
_REGISTERS = 8  # those of a thread are allocated in groups of so many
WORKSPACE_LIMIT = 1024 * MIB
"""Most bytes of workspace that a call asks for where its user says nothing."""


@dataclass(frozen=True, slots=True)
class ArchFacts:
    """Limits and rates of one GPU.

    Attributes:
        arch: Compilation target, e.g. `"sm_90a"`.
        name: The GPU that the counts belong to.
        sm_count: Streaming multiprocessors.
        clock_ghz: Sustained clock in GHz.
        smem_per_block: Most dynamic shared memory that one block may opt in to, bytes.
        smem_per_sm: Shared memory of one SM, bytes; each resident block takes 1 KiB more than it asks for.
        regs_per_sm: 32-bit registers of one SM.
        threads_per_sm: Most resident threads of one SM.
        blocks_per_sm: Most resident blocks of one SM.
        l2_bytes: Size of the L2 cache.
        dram_tbps: Copy rate of device memory, TB/s, reads plus writes.
        l2_tbps: Read rate of L2, TB/s.
        tensor_lanes: Tensor-core multiply-adds per clock and SM, by `"float16"`, `"bfloat16"`, `"tf32"`, `"float64"`.
        fma_lanes: Ordinary multiply-adds per clock and SM, by dtype (complex: real multiply-adds).
        mma_sync_share: Share of the tensor rate that warp-level `mma.sync` reaches (the rest needs wgmma or tcgen05).
        workspace_limit: Most device memory that one call may take for partial sums or packed copies, in bytes. It is
            not the GPU's but its user's limit; 0 forbids both.
        link_tbps: Rate at which another GPU of the host is read or written, TB/s.
    """

    arch: str
    name: str
    sm_count: int
    clock_ghz: float
    smem_per_block: int
    smem_per_sm: int
    regs_per_sm: int
    threads_per_sm: int
    blocks_per_sm: int
    l2_bytes: int
    dram_tbps: float
    l2_tbps: float
    tensor_lanes: Mapping[str, float] = field(hash=False)
    fma_lanes: Mapping[str, float] = field(hash=False)
    mma_sync_share: float = 1.0
    workspace_limit: int = WORKSPACE_LIMIT
    link_tbps: float = 0.025

    def smem_for(self, needed: int, kept: int = 0) -> int:
        """The size of an SM's shared memory that holds so many bytes and leaves the first cache `kept`, if it can."""
        sizes = [x for x in _SMEM_SIZES if x <= self.smem_per_sm]
        most = max((x for x in sizes if self.smem_per_sm + _CACHE_ALONE - x >= kept), default=sizes[0])
        return min((x for x in sizes if x >= min(needed, most)), default=self.smem_per_sm)

    def resident_blocks(self, registers: int, threads: int, smem: int, kept: int = 0) -> int:
        """Blocks that an SM holds, 1 at least, where its first cache keeps `kept` bytes of what it shares.

        Args:
            registers: Of a thread.
            threads: Of a block.
            smem: Of a block, as it asks for it.
            kept: 0 where shared memory may take all that it can have.
        """
        held = -(-max(registers, 1) // _REGISTERS) * _REGISTERS * threads
        shared = self.smem_for(self.smem_per_sm, kept) if kept else self.smem_per_sm
        by_threads = min(self.regs_per_sm // held, self.threads_per_sm // threads)
        return max(1, min(shared // (smem + KIB), by_threads, self.blocks_per_sm))

    @property
    def tensor_tflops(self) -> Mapping[str, float]:
        """Tensor-core peak in TFLOP/s (two operations per multiply-add) by type of the factors."""
        return self._tflops(self.tensor_lanes)

    @property
    def fma_tflops(self) -> Mapping[str, float]:
        """Peak of ordinary arithmetic in TFLOP/s by dtype; half types are multiplied as float32."""
        return self._tflops(self.fma_lanes)

    def _tflops(self, lanes: Mapping[str, float]) -> Mapping[str, float]:
        per_lane = 2e-3 * self.sm_count * self.clock_ghz
        return MappingProxyType({dtype: per_lane * n for dtype, n in lanes.items()})

    def resized(self, name: str, sm_count: int, l2_bytes: int, clock_ghz: float, dram_tbps: float) -> ArchFacts:
        """The facts of another GPU of this architecture, from what its driver reports."""
        scale = sm_count * clock_ghz / (self.sm_count * self.clock_ghz)
        return replace(
            self,
            name=name,
            sm_count=sm_count,
            l2_bytes=l2_bytes,
            clock_ghz=clock_ghz,
            dram_tbps=dram_tbps,
            l2_tbps=self.l2_tbps * scale,
        )


def _tensor(half: int, double: float) -> Mapping[str, float]:
    """Lanes of the tensor cores: tf32 runs at half the rate of the 16-bit types."""
    return MappingProxyType({"float16": half, "bfloat16": half, "tf32": half / 2, "float64": double})


def _fma(single: int, double: float, integer: int = 64) -> Mapping[str, float]:
    """Lanes of ordinary arithmetic; a 64-bit integer product takes four 32-bit multiply-adds."""
    lanes: dict[str, float] = dict.fromkeys(("float16", "bfloat16", "float32", "complex64"), float(single))
    lanes |= dict.fromkeys(("float64", "complex128"), float(double))
    lanes |= dict.fromkeys(("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32"), float(integer))
    lanes |= dict.fromkeys(("int64", "uint64"), integer / 4)
    return MappingProxyType(lanes)


_TABLE = (
    ArchFacts("sm_80", "A100 SXM 80 GB", 108, 1.41, 163 * KIB, 164 * KIB, 65536, 2048, 32, 40 * MIB, 1.80, 4.0,
              _tensor(1024, 64), _fma(64, 32), link_tbps=0.246),
    ArchFacts("sm_86", "RTX A6000", 84, 1.80, 99 * KIB, 100 * KIB, 65536, 1536, 16, 6 * MIB, 0.68, 2.0,
              _tensor(512, 2), _fma(128, 2)),
    ArchFacts("sm_87", "Jetson AGX Orin", 16, 1.30, 163 * KIB, 164 * KIB, 65536, 1536, 16, 4 * MIB, 0.18, 0.5,
              _tensor(512, 2), _fma(128, 2)),
    ArchFacts("sm_89", "L40S", 142, 2.49, 99 * KIB, 100 * KIB, 65536, 1536, 24, 96 * MIB, 0.76, 4.0,
              _tensor(512, 2), _fma(128, 2)),
    # 0.63: mma.sync against wgmma, Luo et al., arXiv 2402.13499. On Blackwell the share is assumed, not measured.
    ArchFacts("sm_90a", "H200 SXM", 132, 1.83, 227 * KIB, 228 * KIB, 65536, 2048, 32, 50 * MIB, 4.25, 6.9,
              _tensor(2048, 128), _fma(128, 64), 0.63, link_tbps=0.37),
    ArchFacts("sm_100a", "B200", 148, 1.85, 227 * KIB, 228 * KIB, 65536, 2048, 32, 126 * MIB, 7.1, 9.0,
              _tensor(4096, 64), _fma(128, 64), 0.25, link_tbps=0.74),
    ArchFacts("sm_103a", "B300", 148, 1.85, 227 * KIB, 228 * KIB, 65536, 2048, 32, 126 * MIB, 7.1, 9.0,
              _tensor(4096, 2), _fma(128, 2), 0.25, link_tbps=0.74),
    ArchFacts("sm_120a", "RTX PRO 6000 Blackwell", 188, 2.60, 99 * KIB, 100 * KIB, 65536, 1536, 24, 128 * MIB, 1.59,
              6.0, _tensor(512, 2), _fma(128, 2)),
)  # fmt: skip

ARCHS: Mapping[str, ArchFacts] = MappingProxyType({facts.arch: facts for facts in _TABLE})
"""Nominal facts by architecture."""


_NAMED: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "sm_80": ("a100", "a800", "a30"),
    "sm_86": ("a40", "a10", "a16", "a6000", "a5000", "3090", "3080"),
    "sm_87": ("orin",),
    "sm_89": ("l40s", "l40", "l4", "4090", "4080", "ada"),
    "sm_90a": ("h200", "h100", "h800", "h20", "gh200", "hopper"),
    "sm_100a": ("b200", "gb200"),
    "sm_103a": ("b300", "gb300"),
    "sm_120a": ("5090", "5080"),
    "sm_80 sm_86": ("ampere",),
    "sm_100a sm_103a sm_120a": ("blackwell",),
})  # fmt: skip
"""Words that stand for architectures: a GPU's name, or that of a generation, which may have several."""


def archs_named(name: str) -> tuple[str, ...]:
    """The architectures that a name stands for: a target in any spelling, a GPU's name, or a generation's.

    Args:
        name: Such as `"sm_90a"`, `"SM90"`, `"compute_90a"`, `"9.0"`, `"H100"`, `"NVIDIA A100-SXM4-80GB"`, `"hopper"`.

    Returns:
        One architecture; several where a generation has several; none where the name means nothing here. Without its
        suffix, a target stands for the one that kernels are generated for: `"sm_90"` for `"sm_90a"`.
    """
    number = re.fullmatch(r"(?:sm|compute)?_?(\d{1,2}\.?\da?)", name.lower())
    if number is not None:
        target = "sm_" + number[1].replace(".", "")
        return tuple(x for x in ARCHS if x in (target, target + "a"))
    words = re.split(r"[\W_]+", name.lower())
    return next((tuple(archs.split()) for archs, known in _NAMED.items() if not set(words).isdisjoint(known)), ())


def arch_facts(arch: str) -> ArchFacts:
    """Nominal facts of an architecture.

    Args:
        arch: Compilation target such as `"sm_80"` or `"sm_90a"`.

    Raises:
        ScheduleError: The architecture is not in the table.
    """
    try:
        return ARCHS[arch]
    except KeyError:
        raise ScheduleError(f"arch={arch!r} is not known; known architectures: {', '.join(ARCHS)}") from None


def capability(arch: str) -> tuple[int, int]:
    """The compute capability of a compilation target: `"sm_90a"` is for `(9, 0)`."""
    digits = arch.removeprefix("sm_").rstrip("af")
    return int(digits[:-1]), int(digits[-1])


def arch_of(major: int, minor: int) -> str:
    """The compilation target for a compute capability: `(9, 0)` is `"sm_90a"`, `(8, 6)` is `"sm_86"`.

    From 9.0 on the architecture-specific target (suffix `a`) is needed for wgmma and its successors. A capability
    that the table lacks is run as the nearest older one of its generation where the binary is compatible (8.x).

    Raises:
        ScheduleError: Older than 8.0, or a generation that the table lacks.
    """
    exact = f"sm_{major}{minor}" + ("a" if major >= 9 else "")
    if exact in ARCHS:
        return exact
    older = [m for m in range(minor) if f"sm_{major}{m}" in ARCHS] if major < 9 else []
    if not older:
        raise ScheduleError(
            f"compute capability {major}.{minor} is not supported; known architectures: {', '.join(ARCHS)}"
        )
    return f"sm_{major}{older[-1]}"
