"""Runs every launch of a packed schedule on the host: the kernel's text, in stream order, on one workspace.

The product must be one of multiply-adds (`tests.cpu.host_blocks`). Knows where launches find their tensors.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gett.codegen.packed import COPIES
from gett.codegen.records import Launch
from gett.codegen.render import render_kernel
from gett.ir.gemm import GemmPlan
from gett.schedule.packed import plan_in_roles
from gett.schedule.spec.schedule import Schedule
from tests.cpu.host_blocks import FOLDER
from tests.cpu.host_cuda import run_host

READ = """
static char* tensor(long long* size) {
  void* x;
  if (fread(size, 8, 1, stdin) != 1 || posix_memalign(&x, 256, *size + 1)) exit(2);
  if (fread(x, 1, *size, stdin) != size_t(*size)) exit(3);
  return static_cast<char*>(x);
}
"""
LAUNCH = """
static TYPE pINDEX;
static void launch_INDEX() {
  if (fread(&pINDEX, sizeof pINDEX, 1, stdin) != 1) exit(5);
  PLACE
  for (blockIdx.y = 0; blockIdx.y < ROWS; ++blockIdx.y)
    for (int block = 0; block < GRID; ++block) gett::blocks::run(block, THREADS, [] { ENTRY(pINDEX); });
  blockIdx.y = 0;
}
"""


def run_packed(
    tmp: Path, plan: GemmPlan, schedule: Schedule, first: NDArray[Any], second: NDArray[Any], d: NDArray[Any],
    alpha: complex = 1,
) -> None:  # fmt: skip
    """Write into the buffer `d` what the launches of a packed schedule compute.

    Args:
        tmp: For the program.
        plan: As it was made.
        schedule: With copies; its product is a multistage one of multiply-adds.
        first: Buffer of the contraction's first operand, which begins with its element at coordinate 0.
        second: Of the second one.
        d: Of the result.
        alpha: Factor of the product.
    """
    kernel = render_kernel(plan, schedule)
    swapped = plan_in_roles(plan, schedule).swapped
    roles = {"a": second, "b": first} if swapped else {"a": first, "b": second}
    buffers = roles | {"d": d, "workspace": np.full(kernel.workspace_bytes, 0x5A, "uint8")}
    data = []
    for buffer in buffers.values():
        raw = buffer.tobytes()
        data += [struct.pack("<q", len(raw)), raw]
    body = "".join(f"static char* at_{role};\nstatic long long size_{role};\n" for role in buffers)
    main = "".join(f"  at_{role} = tensor(&size_{role});\n" for role in buffers)
    for index, launch in enumerate(kernel.launches):
        assert launch.grid[2] == 1
        params = bytearray(launch.params)
        for name, offset, dtype in launch.scalars:
            value = np.array({"alpha": alpha, "beta": 0}[name], dtype).tobytes()
            params[offset : offset + len(value)] = value
        data.append(bytes(params))
        body += _launch(index, launch)
        main += f"  launch_{index}();\n"
    main += "  fwrite(at_d, 1, size_d, stdout);\n"
    out = run_host(tmp, f"{kernel.source.text}{READ}{body}int main() {{\n{main}}}\n", b"".join(data), blocks=FOLDER)
    d[...] = np.frombuffer(out, d.dtype).reshape(d.shape)


def _launch(index: int, launch: Launch) -> str:
    moved = {role: (base, shift) for role, base, shift in launch.moved}
    place = ""
    for role, offset in launch.pointers:
        base, shift = moved.get(role, (role, 0))
        place += f"*(char**)((char*)&pINDEX + {offset}) = at_{base} + {shift};\n  "
    text = LAUNCH.replace("TYPE", "CopyParams" if launch.entry == COPIES else "Params").replace("PLACE", place)
    text = (
        text.replace("INDEX", str(index))
        .replace("ENTRY", launch.entry)
        .replace("GRID", str(launch.grid[0]))
        .replace("ROWS", str(launch.grid[1]))
    )
    return text.replace("THREADS", str(launch.block[0]))
