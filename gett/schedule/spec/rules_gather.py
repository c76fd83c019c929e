"""Rules of operands that warps gather where no tensor map can bring them."""

from __future__ import annotations

from gett.hw.archs import ArchFacts
from gett.ir.gemm import GemmPlan, itemsize
from gett.schedule.spec.loader import Gather
from gett.schedule.spec.mainloop import WgmmaSS
from gett.schedule.spec.rule import Rule
from gett.schedule.spec.schedule import Schedule
from gett.schedule.spec.scheduler import PersistentRaster
from gett.schedule.spec.wgmma_needs import GATHERING, REACH, chunk_bytes, gathers, warp_pieces
from gett.schedule.spec.wgmma_operand import WgmmaOperand, operands
from layouts.box import TileDim
from layouts.swizzle import CHUNK, SPANS

COPIES = 32
"""Most chunks of a k-tile that a thread copies: a bit each says which lie at the tensor's end."""

Gathered = tuple[WgmmaOperand, Gather]


def _gathered(s: Schedule, plan: GemmPlan) -> list[Gathered]:
    return [(x, x.loader) for x in operands(s, plan) if isinstance(x.loader, Gather)]


def _lead(x: WgmmaOperand, loader: Gather) -> TileDim | None:
    """The dimension of the tile that pieces lie along; where they are transposed, the other operand's comes first."""
    dims = (x.box_k if loader.major == "k" else x.box).dims
    at = 1 if loader.transpose else 0
    return dims[at] if at < len(dims) else None


def _producers(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    loop = s.wgmma
    assert isinstance(loop, WgmmaSS)
    fetching, chunks = loop.producers, loop.cp_async_stages
    if gathers(loop):
        right = fetching == GATHERING and chunks >= 1
        wanted = f"{GATHERING} warpgroups gather, into 1 k-tile or more"
    else:
        right, wanted = fetching == 1 and chunks == 0, "without gathering 1 warpgroup fetches, into 0 k-tiles"
    return None if right else f"producers: {fetching} warpgroups into {chunks} k-tiles of chunks; {wanted}"


def _parts(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    if not gathers(s.wgmma):
        return None
    if not isinstance(s.scheduler, PersistentRaster):
        return f"gather: the warps walk 1 raster of tiles, not those of a {type(s.scheduler).__name__}"
    if s.cluster != (1, 1):
        return f"gather: the warps walk tiles of single blocks, the cluster is {s.cluster}"
    if s.tiling.mma_tiles > 1:
        return f"gather: the warps fetch 1 MMA tile for a tile of D, not {s.tiling.mma_tiles}"
    return None


def _transpose(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    a, b = operands(s, plan)
    crossed = None not in (a.k_unit, b.k_unit) and a.k_unit != b.k_unit
    loaders = [x.loader.transpose if isinstance(x.loader, Gather) else 0 for x in (a, b)]
    if loaders[1]:
        return f"transpose: pieces of {loaders[1]} of B, only A's are transposed"
    if not loaders[0]:
        return None
    wide, first = loaders[0], s.tiling.k.dims[0]
    if not crossed or a.loader.major != "k" or not isinstance(b.loader, Gather):
        return f"transpose: pieces of {wide} are transposed, but rows run along modes {a.k_unit} and {b.k_unit} of K"
    chunk = CHUNK // itemsize(plan.contraction.dtype)
    if first.modes != (b.k_unit,) or first.box != wide or wide % chunk:
        return f"transpose: {wide} of B's mode, {chunk} at a time, but box_k begins with {first}"
    assert isinstance(a.loader, Gather)
    if wide * a.loader.run != s.tiling.block[2]:
        return f"transpose: {wide} of B's mode times {a.loader.run} of A's are not block_k = {s.tiling.block[2]}"
    return None


def _pieces(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    chunk = CHUNK // itemsize(plan.contraction.dtype)
    for x, loader in _gathered(s, plan):
        lead, unit = _lead(x, loader), x.k_unit if loader.major == "k" else x.free_unit
        if lead is None or lead.modes != (unit,):
            return f"pieces: operand {x.name} has unit stride along mode {unit}, pieces lie along {lead}"
        if loader.run < 1 or loader.run % chunk or lead.box % loader.run:
            return f"pieces: {loader.run} elements of operand {x.name}, a multiple of {chunk} must divide {lead.box}"
    return None


def _swizzle(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    size = itemsize(plan.contraction.dtype)
    for x, loader in _gathered(s, plan):
        lead = _lead(x, loader)
        assert lead is not None
        row = (x.box_k.size if loader.major == "k" else lead.box) * size
        if loader.swizzle_bytes not in (CHUNK, *SPANS) or row % loader.swizzle_bytes:
            return f"swizzle: {loader.swizzle_bytes} bytes do not divide rows of {row} bytes of operand {x.name}"
    return None


def _offsets(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    size = itemsize(plan.contraction.dtype)
    for x, _ in _gathered(s, plan):
        steps = [(m.strides[x.tensor], m.extent) for m in x.modes]
        wrong = next((step for step, _ in steps if step < 0 or step % size), None)
        if wrong is not None:
            return f"offsets: operand {x.name} has a stride of {wrong} bytes; gathered ones go up in elements of {size}"
        reach = sum(step * (extent - 1) for step, extent in steps) // size
        if reach >= REACH:
            return f"offsets: operand {x.name} spans {reach} elements, offsets reach {REACH}"
    return None


def _copies(s: Schedule, plan: GemmPlan, facts: ArchFacts) -> str | None:
    size, warps = itemsize(plan.contraction.dtype), 4 * GATHERING
    for x, loader in _gathered(s, plan):
        pieces = warp_pieces(x.box.size, s.tiling.block[2], loader, warps)
        count = -(-pieces * (chunk_bytes(loader.run, size) // CHUNK) // 32)
        if count > COPIES:
            return f"gathered copies: {count} a thread for a k-tile of operand {x.name}, the limit is {COPIES}"
    return None


GATHER_RULES = (
    Rule("producers", "Two warpgroups gather into chunks of their own; without gathering one fetches.", _producers),
    Rule("gather", "Gathering warps serve blocks of a raster, without clusters, an MMA tile a tile.", _parts),
    Rule("transpose", "Pieces of A are transposed where the operands' rows run along two modes of K.", _transpose),
    Rule("pieces", "Pieces are whole chunks of the unit-stride mode and divide its box.", _pieces),
    Rule("swizzle", "The swizzle divides a gathered row.", _swizzle),
    Rule("offsets", "32-bit offsets go up through a gathered operand.", _offsets),
    Rule("gathered copies", f"A thread copies at most {COPIES} chunks of an operand's k-tile.", _copies),
)
"""How operands travel that are gathered."""
