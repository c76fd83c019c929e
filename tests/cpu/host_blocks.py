"""Runs whole kernels on the host: the text of a plan's kernel, block by block, on arrays.

Knows the packed argument of a kernel. Threads are fibers, of which each runs to the next barrier (`blocks.h`).
Stream kernels and multistage ones can be run, of the instructions of the tensor cores `mma.sync` of float64 and of its
complex numbers. Partial tiles are added by the second kernel, as long as no threads share their outputs. Reads and
writes outside of the tensors and of the workspace end the program.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gett.codegen.render import render_kernel
from gett.ir.gemm import GemmPlan
from gett.schedule.spec.schedule import Schedule
from tests.cpu.host_cuda import run_host

FOLDER = Path(__file__).parent / "host_blocks"
PROGRAM = """
static Params p;
static long long size;
static char* tensor() {
  void* x;
  if (fread(&size, 8, 1, stdin) != 1 || posix_memalign(&x, 256, size)) exit(2);
  if (fread(x, 1, size, stdin) != size_t(size)) exit(3);
  return static_cast<char*>(x);
}
static void launch(void (*kernel)()) {
  int grid[2], threads;
  if (fread(grid, 4, 2, stdin) != 2 || fread(&threads, 4, 1, stdin) != 1) exit(4);
  for (int y = 0; y < grid[1]; ++y)
    for (int x = 0; x < grid[0]; ++x) {
      blockIdx.y = y;
      gett::blocks::run(x, threads, kernel);
    }
}
int main() {
  if (fread(&p, sizeof p, 1, stdin) != 1) return 5;
  char* x = nullptr;
  READ
  LAUNCH
  fwrite(x, 1, size, stdout);
}
"""


def run_kernel(
    tmp: Path,
    plan: GemmPlan,
    schedule: Schedule,
    arrays: dict[str, NDArray[Any]],
    d: NDArray[Any],
    alpha: complex = 1,
    beta: complex = 0,
    *,
    sparing: bool = False,
) -> None:
    """Write into `d` what a kernel of a plan computes.

    Args:
        tmp: For the program.
        plan: As it was made; the schedule does not lower it.
        schedule: A multistage one, or a stream kernel.
        arrays: Buffers that begin with the element at coordinate 0, by role (`"a"`, `"b"`, `"c"`), of the plan.
        d: The buffer of the result.
        alpha: Factor of the product.
        beta: Factor of C.
        sparing: Whether the kernel is compiled to spare registers.
    """
    kernel = render_kernel(plan, schedule)
    first, *others = kernel.launches
    assert all(x.params == first.params for x in others)
    params = bytearray(first.params)
    for name, offset, dtype in first.scalars:
        value = np.array({"alpha": alpha, "beta": beta}[name], dtype).tobytes()
        params[offset : offset + len(value)] = value
    roles = [role for role, _ in first.pointers if role != "d"]
    buffers = {**arrays, "workspace": np.full(kernel.workspace_bytes, 0x7B, "uint8")}
    data = [bytes(params)]
    for array in (*(buffers[role] for role in roles), d):
        raw = array.tobytes()
        data += [struct.pack("<q", len(raw)), raw]
    read = "".join(f"x = tensor(); p.{role} = (decltype(p.{role}))x;\n  " for role in (*roles, "d"))
    data += [struct.pack("<iii", *x.grid[:2], x.block[0]) for x in kernel.launches]
    launches = "".join(f"launch([] {{ {x.entry}(p); }});\n  " for x in kernel.launches)
    body = PROGRAM.replace("READ", read).replace("LAUNCH", launches)
    out = run_host(tmp, kernel.source.text + body, b"".join(data), sparing=sparing, blocks=FOLDER)
    d[...] = np.frombuffer(out, d.dtype).reshape(d.shape)
