"""What the Hopper main loops share: tiles in shared memory, registers, constants of loaders, the order of rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gett.console.formatting import count
from gett.hw.dtypes import data_type
from gett.ir.gemm import GemmPlan, itemsize
from gett.schedule.mainloops.kind import Constants, MainloopKind, Smem, WgmmaText
from gett.schedule.rules import common, hopper
from gett.schedule.rules.epilogue import EPILOGUE_RULES
from gett.schedule.rules.rule import Rule
from gett.schedule.spec.hopper_needs import ACCUMULATORS, GRAIN, MOST_STAGES, leads, multiplied, up, valid_k
from gett.schedule.spec.loader import CpAsyncTile, HopperLoader, Stationary, Tma
from gett.schedule.spec.mainloop import Hopper
from gett.schedule.spec.schedule import Schedule, SmemPlan
from layouts.swizzle import CHUNK

ALIGN = 1024  # tiles start at multiples of the widest swizzle's period
THREAD_REGISTERS = (40, 232)  # registers of a thread that issues copies, and of one that multiplies

_DUMP = 128  # bytes behind a staged tile where matrices' rows of padding go


def barrier_bytes(stages: int) -> int:
    """Bytes of the barriers of stages and of two staging buffers."""
    return 16 * stages + 16


def row_bytes(loader: HopperLoader, deep: int, size: int) -> int:
    """Shared memory that `deep` k of one row of an operand take: K-major rows are whole atoms of the swizzle."""
    return up(deep * size, loader.swizzle_bytes) if loader.major == "k" else deep * size


def tile_bytes(name: str, rows: int, deep: int) -> int:
    """Shared memory of a tile of operand `name`, whose rows take `deep` bytes."""
    return up(up(rows, GRAIN[name]) * deep, ALIGN)


def operand_tiles(s: Schedule) -> tuple[tuple[str, HopperLoader, int], ...]:
    """Name, loader, and rows of a k-tile of A and of B."""
    return ("a", s.hopper.a, s.tiling.m.size // s.tiling.mma_tiles), ("b", s.hopper.b, s.tiling.n.size)


def staging_bytes(s: Schedule, plan: GemmPlan) -> int:
    """Bytes of the staged tiles of D and of what their stores need beside them; none where slices are added.

    In ping-pong each warpgroup has a tile. With C from vectors float32 is staged, and C has offsets too; where a tensor
    map brings C to where D is staged, it takes no room of its own.
    """
    store, loop, (rows, columns, _) = s.epilogue.store, s.hopper, s.tiling.shape
    if s.split_k > 1 or store.stage is None:
        return 0
    added, tile = s.epilogue.vector_source, store.stage
    offsets = 0 if store.map is not None else (rows + columns) * 8 * (2 if added else 1)
    sums = data_type(plan.contraction.dtype).accumulator_bytes
    staged = tile.elements * (sums if added else itemsize(plan.contraction.d.dtype))
    staged += 0 if tile.copy.kind in ("scalar", "pair_n", "one") else _DUMP
    one = up(staged, ALIGN if tile.swizzle_bytes > CHUNK else 128) + up(offsets, 128)
    return one * store.buffers * (loop.warpgroups if loop.ping_pong else 1)


def laid_out(
    s: Schedule, plan: GemmPlan, kept: int = 0, second: int = 0, barriers: int = barrier_bytes(MOST_STAGES)
) -> SmemPlan:
    """Stages, what is kept beside them, staged tiles, barriers; D may be staged where the stages are.

    An operand that stays, planes, or k-tiles transposed have `kept` bytes, a second tile of D has `second`. `barriers`
    counts what lies behind them, too.
    """
    deep, size = s.tiling.shape[2], itemsize(plan.contraction.dtype)
    moving = ((name, x.rows(rows), row_bytes(x, deep, size)) for name, x, rows in operand_tiles(s) if not x.stays)
    stage = sum(tile_bytes(*tile) for tile in moving)
    first, staging = s.hopper.stages * stage, staging_bytes(s, plan) + second
    if s.epilogue.store.reuse_mainloop_smem:
        end = max(first, staging)
        return SmemPlan(ALIGN + barriers + end, stage, barriers=end)
    staged, end = first + kept, first + kept + staging
    return SmemPlan(ALIGN + barriers + end, stage, planes=first if kept else 0, staging=staged, barriers=end)


def hopper_rules(types: Rule, own: tuple[Rule, ...], *warps: Rule) -> tuple[Rule, ...]:
    """All conditions of a main loop: those of its operands' types, its own, of warpgroups where it has a choice."""
    return (
        *(hopper.hopper, types, common.product, common.groups, common.extents, hopper.scheduler, *warps),
        *(hopper.batches_together, hopper.stream_k, hopper.mma_tiles, hopper.block, common.boxes, hopper.stages),
        *(common.split, common.workspace, common.grid, *own, *EPILOGUE_RULES, common.shared_memory),
    )


def by_accumulators(registers: dict[int, tuple[int, int]], held: int) -> tuple[int, int]:
    """Those of a table by the accumulators that a thread may have, for one that has `held`; the usual beside it."""
    return next((r for most, r in registers.items() if held <= most), registers.get(ACCUMULATORS, THREAD_REGISTERS))


def kept_operand(plan: GemmPlan, s: Schedule) -> str:
    """The operand that all tiles read whole, so that a stage keeps what it was filled with; else nothing.

    All blocks would read the same few lines of it for each tile, and L2 serves a line to one of them at a time. Each
    stage has the same k-tile every time.
    """
    loop, t, order, store = s.hopper, s.tiling, s.scheduler, s.epilogue.store
    steps = t.k.tiles * t.mma_tiles
    if not isinstance(loop.a, Tma) or not isinstance(loop.b, Tma) or loop.stages % t.k.tiles or plan.extent_l > 1:
        return ""
    divided = s.split_k > 1 or order.stream_k or order.ragged or s.cluster != (1, 1)
    if divided or store.reuse_mainloop_smem or -(-t.tiles(1) // order.blocks) * steps <= loop.stages:
        return ""
    return "b" if t.n.tiles == 1 else "a" if t.m.tiles == t.mma_tiles == 1 else ""


def tile_loaders(plan: GemmPlan, s: Schedule) -> Sequence[Constants]:
    """Constants of the loaders of A and of B, each of which fills a tile of a stage."""
    kept = kept_operand(plan, s)
    return [_tile_loader(plan, s, loader, rows, name == kept) for name, loader, rows in operand_tiles(s)]


def _tile_loader(plan: GemmPlan, s: Schedule, loader: HopperLoader, rows: int, kept: bool) -> Constants:
    load, deep = loader.tma, s.tiling.shape[2]
    short = load is not None and s.tiling.k.size < deep  # the rest of the block's k stays zero
    return {
        "kKind": f"LoaderKind::kLoader{type(loader).__name__}",
        "kMajorK": loader.major == "k",
        "kSwizzleBytes": loader.swizzle_bytes,
        "kRows": loader.rows(rows),
        "kValidK": valid_k(load, len(plan.k)) if load is not None and short else deep,
        "kTransactionBytes": load.bytes if load is not None else 0,
        **{"kKTiles": 0, "kRunElements": 0, **_own_constants(loader)},
        "kTransposeK": loader.transform.elements if loader.transform else 0,
        "kKept": kept,
    }


def _own_constants(loader: HopperLoader) -> Constants:
    """Constants that no other loader's C++ is told."""
    if isinstance(loader, CpAsyncTile):
        return {"kVector": loader.vector}
    if isinstance(loader, Stationary):
        return {"kKTiles": loader.k_tiles}
    return {"kRunElements": loader.width}


def one_wgmma(plan: GemmPlan, s: Schedule, majors: tuple[str, ...] = (), signed: bool = False) -> WgmmaText:
    """One wgmma for all columns, of operands in shared memory as they come or of other majors."""
    tensor = multiplied(plan)
    assert tensor is not None
    return WgmmaText(tensor, (s.tiling.shape[1],), majors or (s.hopper.a.major, s.hopper.b.major), signed)


def orders(plan: GemmPlan, s: Schedule, **own: bool | int) -> Constants:
    """K of the modes along which A's and B's rows run, `own` constants, and which operands are conjugated."""
    conjugated = {name: x is not None and x.conj for name, x in (("kConjA", plan.a), ("kConjB", plan.b))}
    return dict(zip(("kLeadA", "kLeadB"), leads(s.hopper, s.tiling.k), strict=True)) | own | conjugated


@dataclass(frozen=True, kw_only=True)
class HopperKind(MainloopKind):
    """A main loop in which some warpgroups fetch and others multiply. Its C++ has the name of its record."""

    # Constants of its `MainloopTraits`, beside stages and registers: those that are fields of its record, and others.
    fields: Mapping[str, str]
    traits: Callable[[GemmPlan, Schedule], Constants] = lambda plan, schedule: {}
    # The wgmma that the kernel's text has, or the class of `gett/kernels` that multiplies.
    multiplies: Callable[[GemmPlan, Schedule], WgmmaText | str] = one_wgmma
    smem: Smem = laid_out
    # Of a thread that fetches, and of one that multiplies a tile of so many columns.
    registers: Callable[[GemmPlan, Hopper, int], tuple[int, int]] = lambda plan, loop, columns: THREAD_REGISTERS
    # Constants of the loaders of A and of B.
    loader_traits: Callable[[GemmPlan, Schedule], Sequence[Constants]] = tile_loaders
    brings: str = "gathering"  # what warpgroups do that bring operands, and one more that does not multiply, for people
    makes: str = ""
    repairs: bool = False  # whether it makes tiles again whose numbers were none for it
    # Whether rows of 64 bytes fetch their neighbours from memory, since these will be read soon.
    fetches_lines: bool = True

    def fetchers(self, s: Schedule) -> str:
        """Which warps do not multiply, for people."""
        bring, make = s.hopper.producers, self.makes and s.hopper.producers > 1
        first = count(bring - bool(make), f"{self.brings} warpgroup") if s.hopper.by_warps else "1 producer"
        return f"{first}, 1 warpgroup that {self.makes}" if make else first
