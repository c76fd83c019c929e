"""The kernels of grouped launches: traits, the argument and the entry; and how the tables lie that they read.

The kernel is `gett/kernels/kernel/grouped_gemm.cuh`, the tables are the structs of `gett/kernels/core/problems.cuh`.
"""

from __future__ import annotations

import math
import struct as packing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gett.codegen.common import entry
from gett.codegen.params import cpp_type
from gett.codegen.records import Kernel, KernelSource, Launch
from gett.codegen.traits import struct
from gett.hw.dtypes import data_type
from gett.ir.gemm import A, B, D, GemmPlan
from gett.schedule.spec.grouped import GroupedLoad, GroupedSchedule, GroupedTile

GROUPS = "lmnk"
"""The groups of modes, in the order of the kernels."""

STEP = np.dtype([("a", "<i8"), ("b", "<i8"), ("d", "<i8")])
"""`ProblemOffsets`: bytes in A, B and D."""
MODE = np.dtype([("extent", "<i4"), ("unused", "<i4"), ("step", STEP)])
"""`ProblemMode`."""
LAYOUT = np.dtype([("extent", "<i4", 4), ("first", "<i4", 4), ("count", "<i4", 4)])
"""`ProblemLayout`."""
PAIR = np.dtype([("a", "<u8"), ("b", "<u8"), ("layout", "<i4"), ("k_tiles", "<i4")])
"""`ProblemPair`."""
OUTPUT = np.dtype(
    [(name, "<u8" if name == "d" else "<i4")
     for name in ("d", "first_pair", "first_tile", "tiles_m", "tiles_n", "k_tiles", "unused")]
)  # fmt: skip
"""`ProblemOutput`."""

LISTED = np.dtype([(name, "<u8" if name in "abd" else "<i4") for name in ("a", "b", "d", "layout", "first_tile")])
"""`ListedProblem`."""
MOST_LISTED = 120
"""Problems in the argument of a launch, which has at most 4096 bytes on every driver."""

RECORDS = {
    "ProblemOffsets": STEP,
    "ProblemMode": MODE,
    "ProblemLayout": LAYOUT,
    "ProblemPair": PAIR,
    "ProblemOutput": OUTPUT,
    "ListedProblem": LISTED,
}
"""The structs of the tables, by their C++ names."""

ENTRY = "gett_grouped"
_TABLES = ("outputs", "pairs", "layouts", "modes", "tiles")
_RAGGED = ("a", "b", "d", "ends", "layouts", "modes")
_LISTED = ("layouts", "modes")
_LIST_BEGIN = 8 * len(_LISTED) + 8  # behind the addresses the count
_ROW_GAP, _DOUBLE_GAP = 16, 32  # bytes behind a row of a tile, which keep a fragment's rows in different banks


@dataclass(frozen=True, slots=True)
class RaggedFigures:
    """What a ragged launch is told beside addresses.

    Attributes:
        problems: How many there are.
        rows: Extent of the ragged mode.
        mode: Its number in the table of modes.
        row_step: Bytes in A, B and D from row to row.
        problem_step: Bytes in A, B and D from problem to problem.
    """

    problems: int
    rows: int
    mode: int
    row_step: tuple[int, int, int]
    problem_step: tuple[int, int, int]


def render_grouped(schedule: GroupedSchedule) -> KernelSource:
    """The text of a class's kernel."""
    tile = schedule.tile
    core, mma = ("mma_sync", "WarpMma") if schedule.tensor_cores else ("simt", "SimtMma")
    wider = max((schedule.a, schedule.b), key=lambda x: data_type(x.dtype).bytes)
    types = {
        "Element": cpp_type(wider.dtype),
        "ElementC": cpp_type(schedule.d),
        "ElementD": cpp_type(schedule.d),
        "Acc": cpp_type(data_type(schedule.dtype).accumulator),
    }
    m, n, k = tile.shape
    loaders = [_loader("A", schedule.a, m, k), _loader("B", schedule.b, n, k)]
    constants = {
        "kStages": tile.stages,
        "kThreads": tile.threads,
        "kWarpsM": tile.warps[0],
        "kWarpsN": tile.warps[1],
        "kTensorCores": schedule.tensor_cores,
    }
    more = [x.rstrip().replace("\n", "\n  ") for x in loaders]
    typedefs = ["typedef ::Params Params;", *(f"typedef {t} {x};" for x, t in types.items())]
    problems = "ListedProblems" if schedule.listed else "TableProblems"
    if schedule.ragged is not None:
        problems = "RaggedProblems"
        group = f"kGroup{schedule.ragged.group.upper()}"
        more.append(f"static constexpr gett::ModeGroup kRaggedGroup = gett::{group};")
    text = (
        f'#include "gett/kernel/grouped_gemm.cuh"\n#include "gett/mainloop/{core}.cuh"\n\n{_params(schedule)}\n'
        + struct("ProblemTraits", {}, more=typedefs)
        + struct("TileShape", {"kBlockM": m, "kBlockN": n, "kBlockK": k, "kBoxMN": m * n}, "ProblemTraits")
        + struct("MainloopTraits", constants, "TileShape", more)
        + f"\ntypedef gett::{problems}<MainloopTraits> Problems;\n"
        f"typedef gett::GroupedGemm<MainloopTraits, gett::{mma}<MainloopTraits>, Problems> Kernel;\n\n"
        + entry(ENTRY, "Kernel::run", f"Kernel::kThreads {_resident(tile)}")
    )  # fmt: skip
    return KernelSource(text, (ENTRY,))


def table_kernel(schedule: GroupedSchedule, source: KernelSource, tiles: int) -> Kernel:
    """The launch that makes a number of tiles, by a table."""
    params = bytes(8 * len(_TABLES))
    return _kernel(schedule, source, tiles, params, _slots(_TABLES))


def ragged_kernel(schedule: GroupedSchedule, source: KernelSource, tiles: int, figures: RaggedFigures) -> Kernel:
    """The launch that makes at most a number of tiles, of problems whose sizes stand on the device."""
    steps = packing.pack("<6q", *figures.row_step, *figures.problem_step)
    counts = packing.pack("<4i", figures.problems, figures.rows, figures.mode, 0)
    params = bytes(8 * len(_RAGGED)) + steps + counts
    return _kernel(schedule, source, tiles, params, _slots(_RAGGED))


def listed_kernel(
    schedule: GroupedSchedule, source: KernelSource, problems: Sequence[tuple[int, tuple[int, int, int]]]
) -> Kernel:
    """The launch that makes problems, each of which has a layout (its number, elements along L, M and N).

    The addresses of problem i are those of the roles `a<i>`, `b<i>` and `d<i>`.
    """
    assert 0 < len(problems) <= MOST_LISTED
    rows, columns, _ = schedule.tile.shape
    listed, tiles, slots = np.zeros(MOST_LISTED, LISTED), 0, [*_slots(_LISTED)]
    for i, (layout, (l, m, n)) in enumerate(problems):
        listed[i]["layout"], listed[i]["first_tile"] = layout, tiles
        tiles += l * -(-m // rows) * -(-n // columns)
        at = _LIST_BEGIN + i * LISTED.itemsize
        slots += [(f"{role}{i}", at + place) for role, place in zip("abd", (0, 8, 16), strict=True)]
    params = bytes(8 * len(_LISTED)) + packing.pack("<2i", len(problems), 0) + listed.tobytes()
    return _kernel(schedule, source, tiles, params, tuple(slots))


def smem_bytes(schedule: GroupedSchedule) -> int:
    """Shared memory of a block: its stages, and tables of the offsets of rows, columns and k."""
    m, n, k = schedule.tile.shape
    stage = sum(_rows(x, mn, k) * _pitch(x, mn, k) for x, mn in ((schedule.a, m), (schedule.b, n)))
    return schedule.tile.stages * stage + 2 * STEP["a"].itemsize * (m + n + 2 * k)


Groups = Sequence[Sequence[tuple[int, tuple[int, int, int]]]]
"""Extents and steps of the modes of a product, by group."""


def groups_of(gemm: GemmPlan) -> Groups:
    """The groups of a product as tables have them."""
    groups = (gemm.l, gemm.m, gemm.n, gemm.k)
    return [[(x.extent, (x.strides[A], x.strides[B], x.strides[D])) for x in group] for group in groups]


def mode_tables(
    layouts: Iterable[Groups],
) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Records of `LAYOUT` and `MODE`; a layout is its groups."""
    heads: list[tuple[list[int], list[int], list[int]]] = []
    modes: list[tuple[int, int, tuple[int, int, int]]] = []
    for groups in layouts:
        extents, first = [], []
        for group in groups:
            extents.append(min(math.prod(extent for extent, _ in group), 2**31 - 1))
            first.append(len(modes))
            modes += [(extent, 0, step) for extent, step in group]
        heads.append((extents, first, [len(group) for group in groups]))
    return np.array(heads, LAYOUT), np.array(modes, MODE)


def _kernel(
    schedule: GroupedSchedule, source: KernelSource, tiles: int, params: bytes, slots: tuple[tuple[str, int], ...]
) -> Kernel:
    block = (schedule.tile.threads, 1, 1)
    launch = Launch(ENTRY, (tiles, 1, 1), block, smem_bytes(schedule), params, slots)
    return Kernel(source, schedule.arch, (launch,))


def _resident(tile: GroupedTile) -> str:
    """What launch bounds say of resident blocks; the compiler chooses where one is enough."""
    return "GETT_MIN_BLOCKS" if tile.resident == 1 else f"GETT_MIN_BLOCKS_OF({tile.resident})"


def _slots(names: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    return tuple((name, 8 * i) for i, name in enumerate(names))


def _params(schedule: GroupedSchedule) -> str:
    """The argument: addresses of the tables, or of the tensors and the ends of their problems."""
    tables = "  const gett::ProblemLayout* layouts;\n  const gett::ProblemMode* modes;\n"
    if schedule.listed:
        return (
            f"struct Params {{\n{tables}  int count;\n  int pad;\n  gett::ListedProblem problems[{MOST_LISTED}];\n}};\n"
        )
    if schedule.ragged is None:
        heads = "  const gett::ProblemOutput* outputs;\n  const gett::ProblemPair* pairs;\n"
        return f"struct Params {{\n{heads}{tables}  const int* tiles;\n}};\n"
    ends = cpp_type(schedule.ragged.ends)
    return (
        f"struct Params {{\n  const char* a;\n  const char* b;\n  char* d;\n  const {ends}* ends;\n{tables}"
        "  gett::ProblemOffsets ragged_step;\n  gett::ProblemOffsets problem_step;\n"
        "  int problems;\n  int rows;\n  int ragged_mode;\n  int pad;\n};\n"
    )


def _loader(name: str, load: GroupedLoad, mn: int, k: int) -> str:
    element = cpp_type(load.dtype)
    if load.conj:
        element = element.replace("complex", "conj")
    constants = {"kMajorK": load.major == "k", "kVec": load.vector, "kSpread": 1}
    layout = f"gett::SwizzledTile<{_pitch(load, mn, k)}, 0, 0>"
    return struct(f"LoaderTraits{name}", constants, more=[f"typedef {element} Element;", f"typedef {layout} Layout;"])


def _rows(load: GroupedLoad, mn: int, k: int) -> int:
    return mn if load.major == "k" else k


def _pitch(load: GroupedLoad, mn: int, k: int) -> int:
    """Bytes from row to row of a tile."""
    kind = data_type(load.dtype)
    gap = _DOUBLE_GAP if kind.doubled else _ROW_GAP
    return (k if load.major == "k" else mn) * kind.bytes + gap
