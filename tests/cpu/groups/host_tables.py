"""Runs grouped launches on the host: kernels by multiply-adds, on tables and arrays in one piece of memory.

Addresses in the tables are places in that memory until the program adds where it lies.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gett.codegen.grouped import (
    RaggedFigures,
    groups_of,
    listed_kernel,
    mode_tables,
    ragged_kernel,
    render_grouped,
    table_kernel,
)
from gett.groups.launches import packed
from gett.groups.layouts import Layout
from gett.groups.table import ClassTable
from gett.schedule.spec.grouped import GroupedSchedule
from tests.cpu.host_blocks import FOLDER
from tests.cpu.host_cuda import run_host

PROGRAM = """
static Params p;
int main() {
  long long head[5];  // bytes, blocks, threads, pairs, outputs
  if (fread(head, 8, 5, stdin) != 5 || fread(&p, sizeof p, 1, stdin) != 1) return 4;
  void* raw;
  if (posix_memalign(&raw, 256, head[0])) return 5;
  char* const base = static_cast<char*>(raw);
  if (fread(base, 1, head[0], stdin) != size_t(head[0])) return 6;
  POINT
  for (int block = 0; block < head[1]; ++block) gett::blocks::run(block, int(head[2]), [] { gett_grouped(p); });
  fwrite(base, 1, head[0], stdout);
}
"""
MOVE = "  p.{0} = (decltype(p.{0}))(base + (long long)p.{0});\n"
TABLES = """
  gett::ProblemPair* const pairs = const_cast<gett::ProblemPair*>(p.pairs);
  gett::ProblemOutput* const outputs = const_cast<gett::ProblemOutput*>(p.outputs);
  for (int i = 0; i < head[3]; ++i) pairs[i].a = base + (long long)pairs[i].a;
  for (int i = 0; i < head[3]; ++i) pairs[i].b = base + (long long)pairs[i].b;
  for (int i = 0; i < head[4]; ++i) outputs[i].d = base + (long long)outputs[i].d;
"""

LISTED = """
  for (int i = 0; i < p.count; ++i) {
    p.problems[i].a = base + (long long)p.problems[i].a;
    p.problems[i].b = base + (long long)p.problems[i].b;
    p.problems[i].d = base + (long long)p.problems[i].d;
  }
"""
POISON = 0x5A


class Memory:
    """Arrays in one piece of memory, with a gap behind each."""

    def __init__(self, nbytes: int = 1 << 20) -> None:
        raw = np.full(nbytes + 256, POISON, np.uint8)
        skip = -raw.__array_interface__["data"][0] % 256
        self.bytes = raw[skip : skip + nbytes]
        self.base = self.bytes.__array_interface__["data"][0]
        self.end = 256

    def take(self, shape: Sequence[int], dtype: str, order: Sequence[int] | None = None) -> NDArray[Any]:
        """A new array whose axes lie in memory as `order` says."""
        order = range(len(shape)) if order is None else order
        size = int(np.prod([shape[i] for i in order])) * np.dtype(dtype).itemsize
        memory = self.bytes[self.end : self.end + size].view(dtype).reshape([shape[i] for i in order])
        self.end += -(-size // 16) * 16 + 16
        return memory.transpose(np.argsort(list(order)))

    def put(self, values: NDArray[Any], order: Sequence[int] | None = None) -> NDArray[Any]:
        """A copy of an array."""
        made = self.take(values.shape, values.dtype.name, order)
        made[...] = values
        return made

    def place(self, array: NDArray[Any]) -> int:
        """Where an array begins."""
        return int(array.__array_interface__["data"][0]) - self.base

    def gap_behind(self, array: NDArray[Any]) -> bool:
        """Whether nobody has written behind an array."""
        end = self.place(array) + array.nbytes
        return bool((self.bytes[end : -(-end // 16) * 16 + 16] == POISON).all())

    def put_tables(self, tables: Sequence[NDArray[Any]]) -> list[int]:
        """Copies of tables, and where they begin."""
        memory, places = packed(tables)
        self.end = -(-self.end // 64) * 64
        begin = self.end
        self.bytes[begin : begin + len(memory)] = memory
        self.end += len(memory)
        return [begin + x for x in places]


def run_table(tmp: Path, memory: Memory, layouts: Sequence[Layout], table: ClassTable) -> None:
    """Compute the outputs of a class, whose addresses are places in memory."""
    heads, modes = mode_tables(x.modes for x in layouts)
    outputs, pairs, heads_at, modes_at, tiles = memory.put_tables(
        [table.outputs, table.pairs, heads, modes, table.tiles]
    )
    source = render_grouped(table.schedule)
    (launch,) = table_kernel(table.schedule, source, table.blocks).launches
    params = struct.pack("<5q", outputs, pairs, heads_at, modes_at, tiles)
    assert len(params) == len(launch.params)
    moves = "".join(MOVE.format(x) for x in ("outputs", "pairs", "layouts", "modes", "tiles")) + TABLES
    counts = (len(table.pairs), len(table.outputs))
    _run(tmp, memory, source.text, params, moves, table.blocks, table.schedule, counts)


def run_listed(tmp: Path, memory: Memory, schedule: GroupedSchedule, problems: Sequence[Any]) -> None:
    """Compute products that one launch makes together: of each the plan, and A, B and D in the plan's roles."""
    gemms = [gemm for gemm, *_ in problems]
    layouts, modes = memory.put_tables(mode_tables(map(groups_of, gemms)))
    source = render_grouped(schedule)
    listed = [(i, (g.extent_l, g.extent_m, g.extent_n)) for i, g in enumerate(gemms)]
    (launch,) = listed_kernel(schedule, source, listed).launches
    params = bytearray(launch.params)
    places = {"layouts": layouts, "modes": modes}
    for i, (_, *arrays) in enumerate(problems):
        places |= {f"{role}{i}": memory.place(x) for role, x in zip("abd", arrays, strict=True)}
    for role, at in launch.pointers:
        params[at : at + 8] = struct.pack("<q", places.pop(role))
    assert not places
    moves = "".join(MOVE.format(x) for x in ("layouts", "modes")) + LISTED
    _run(tmp, memory, source.text, bytes(params), moves, launch.grid[0], schedule, (0, 0))


def run_ragged(
    tmp: Path,
    memory: Memory,
    schedule: GroupedSchedule,
    figures: RaggedFigures,
    tables: Sequence[NDArray[Any]],
    arrays: Sequence[NDArray[Any]],
    blocks: int,
) -> None:
    """Compute a ragged contraction of arrays in memory: A, B, D and the offsets."""
    places = [*map(memory.place, arrays), *memory.put_tables(tables)]
    source = render_grouped(schedule)
    (launch,) = ragged_kernel(schedule, source, blocks, figures).launches
    params = struct.pack("<6q", *places) + launch.params[48:]
    moves = "".join(MOVE.format(x) for x in ("a", "b", "d", "ends", "layouts", "modes"))
    _run(tmp, memory, source.text, params, moves, blocks, schedule, (0, 0))


def _run(
    tmp: Path,
    memory: Memory,
    text: str,
    params: bytes,
    moves: str,
    blocks: int,
    schedule: GroupedSchedule,
    counts: tuple[int, int],
) -> None:
    head = struct.pack("<5q", memory.end, blocks, schedule.tile.threads, *counts)
    data = head + params + memory.bytes[: memory.end].tobytes()
    out = run_host(tmp, text + PROGRAM.replace("POINT", moves), data, blocks=FOLDER)
    memory.bytes[: memory.end] = np.frombuffer(out, np.uint8)
