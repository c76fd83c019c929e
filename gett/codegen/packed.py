"""From plan and schedule to kernels with packed copies: launches that copy between those of the product.

Each copy's text stands in a namespace of its own in the product's translation unit; copies of equal text share one.
What is copied between two products is one launch: the result of the piece before and the operands of the next one.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from gett.codegen.records import Kernel, KernelSource, Launch
from gett.codegen.stream import MIN_BLOCKS, render_stream
from gett.ir.gemm import GemmPlan
from gett.ir.packing import piece_starts
from gett.schedule.packed import PackedPlans, copy_schedule, plans_of, product_of, scheduled_plan
from gett.schedule.spec.schedule import Packing, Schedule

COPIES = "gett_copies"
WORKSPACE = "workspace"
STREAM_ENTRY = 'extern "C" __global__'


@dataclass(frozen=True, slots=True)
class TensorCopy:
    """What copies one tensor: a part of the launches of copies.

    Attributes:
        name: Of the tensor, `"a"`, `"b"` or `"d"` of the contraction.
        space: Namespace of its records.
        text: Of the stream kernel.
        launch: The stream kernel's own.
        offset: Where the copy lies in the workspace, in bytes.
    """

    name: str
    space: str
    text: str
    launch: Launch
    offset: int

    def pointers(self, at: int) -> list[tuple[str, int]]:
        """Roles and places of the addresses, where the argument begins at byte `at` of the launch's."""
        return [(f"{role} of {self.name}", at + place) for role, place in self.launch.pointers if role in "ad"]

    def moved(self, base: str, start: int) -> list[tuple[str, str, int]]:
        """Where the addresses point, for a tensor that begins `start` bytes behind a role's address."""
        ends = [(WORKSPACE, self.offset), (base, start)]
        if self.name != "d":
            ends.reverse()
        return [(f"{role} of {self.name}", *end) for role, end in zip("ad", ends, strict=True)]


def render_packed(plan: GemmPlan, schedule: Schedule, render: Callable[[GemmPlan, Schedule], Kernel]) -> Kernel:
    """The launches of all pieces: copies and products in turn.

    Args:
        plan: As it was made.
        schedule: With packed copies.
        render: Of a plan and a schedule without any, `gett.codegen.render.render_kernel`.
    """
    packing = schedule.packing
    assert packing is not None
    made = plans_of(plan, packing)
    swapped = scheduled_plan(plan, schedule).swapped
    roles = {"a": "b", "b": "a", "d": "d"} if swapped else {"a": "a", "b": "b", "d": "d"}
    product = render(made.product, product_of(schedule))
    copies = _tensor_copies(schedule.arch, packing, made)
    offsets = {x.name: x.offset for x in copies}
    c = plan.contraction
    assert c.b is not None
    starts = zip(*(piece_starts(c, packing.cuts, x) for x in (c.a, c.b, c.d)), strict=True)
    pieces = [dict(zip("abd", start, strict=True)) for start in starts]
    launches: list[Launch] = []
    for before, piece in itertools.pairwise([None, *pieces, None]):
        due = {}
        for x in copies:
            whose = before if x.name == "d" else piece
            # An operand's copy stays where the next piece needs the same.
            kept = x.name != "d" and before is not None and piece is not None and before[x.name] == piece[x.name]
            if whose is not None and not kept:
                due[x.name] = (roles[x.name], whose[x.name])
        if due:
            launches.append(_copies_launch(copies, due))
        if piece is not None:
            inside = {roles[n]: (WORKSPACE, offsets[n]) if n in offsets else (roles[n], at) for n, at in piece.items()}
            inside["workspace"] = (WORKSPACE, packing.bytes)
            launches += [_moved(x, inside) for x in product.launches]
    texts = {x.space: x.text for x in copies}
    source = KernelSource(
        "\n".join([product.source.text, *texts.values(), _copies_text(copies)]), (*product.source.entries, COPIES)
    )
    return Kernel(source, schedule.arch, tuple(launches), schedule.workspace_bytes)


def _tensor_copies(arch: str, packing: Packing, made: PackedPlans) -> list[TensorCopy]:
    """The parts of launches, the result's first: it was written last and is in L2 still."""
    found: list[TensorCopy] = []
    spaces: dict[str, str] = {}
    for tensor in sorted(made.tensors, key=lambda t: t.name != "d"):
        kernel = render_stream(tensor.plan, copy_schedule(arch, getattr(packing, tensor.name)), plain=True)
        (launch,) = kernel.launches
        text = kernel.source.text
        space = spaces.setdefault(text, f"gett_copy_{tensor.name}")
        found.append(TensorCopy(tensor.name, space, _in_namespace(text, space), launch, tensor.offset))
    return found


def _copies_launch(copies: Sequence[TensorCopy], due: Mapping[str, tuple[str, int]]) -> Launch:
    """The launch that copies some of the tensors.

    Args:
        copies: All parts.
        due: By name of those that are copied, the tensor's role and where the piece begins in it.
    """
    params, blocks = b"", []
    pointers: list[tuple[str, int]] = []
    moved: list[tuple[str, str, int]] = []
    for x in copies:
        if x.name in due:
            pointers += x.pointers(len(params))
            moved += x.moved(*due[x.name])
        blocks.append(x.launch.grid[0] if x.name in due else 0)
        params += x.launch.params
    counts = struct.pack("<4i", *blocks, *[0] * (4 - len(blocks)))
    threads = max(x.launch.block[0] for x in copies)
    smem = max(x.launch.smem_bytes for x in copies)
    return Launch(
        COPIES, (sum(blocks), 1, 1), (threads, 1, 1), smem, params + counts, tuple(pointers), moved=tuple(moved)
    )


def _copies_text(copies: Sequence[TensorCopy]) -> str:
    """The argument and the entry of the launches of copies: blocks are dealt out to the parts."""
    threads = {x.launch.block[0] for x in copies}
    assert len(threads) == 1, "stream kernels have as many threads each"
    fields = "".join(f"  {x.space}::Params {x.name};\n" for x in copies)
    counts = "".join(f"  int blocks_{x.name};\n" for x in copies)
    sizes = "".join(
        f'static_assert(sizeof({x.space}::Params) == {len(x.launch.params)}, "{x.name}");\n' for x in copies
    )
    calls = "".join(
        f"  if (block < p.blocks_{x.name}) return {x.space}::Kernel::run(p.{x.name}, block);\n"
        f"  block -= p.blocks_{x.name};\n"
        for x in copies
    )
    return (
        f'#include "gett/ptx/warpgroup.cuh"\n{sizes}struct CopyParams {{\n{fields}{counts}}};\n'
        f'extern "C" __global__ void __launch_bounds__({threads.pop()}, {MIN_BLOCKS})\n'
        f"{COPIES}(const __grid_constant__ CopyParams p) {{\n"
        "  gett::griddepcontrol_wait();\n"
        f"  int block = blockIdx.x;\n{calls}}}\n"
    )


def _in_namespace(text: str, name: str) -> str:
    """A stream kernel's records in a namespace, without its entry."""
    lines = text[: text.index(STREAM_ENTRY)].splitlines()
    includes = [line for line in lines if line.startswith("#include")]
    body = "\n".join(line for line in lines if not line.startswith("#include"))
    body = body.replace("typedef ::Params", f"typedef {name}::Params")
    return "\n".join([*includes, f"namespace {name} {{", body, "}", ""])


def _moved(launch: Launch, places: Mapping[str, tuple[str, int]]) -> Launch:
    """A launch whose tensors lie elsewhere; roles that stand for their own address stay as they are."""
    used = {role for role, _ in launch.pointers} | {role for role, _, _ in launch.maps}
    moved = tuple((role, *place) for role, place in places.items() if role in used and place != (role, 0))
    return replace(launch, moved=moved)
