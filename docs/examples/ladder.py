"""One product as simt, mma.sync, and wgmma with operands from shared memory and from registers: plans and texts."""

import re

import gett
from gett.codegen.render import render_kernel
from gett.explain.schedule import schedule_facts
from gett.schedule.search.select import candidates
from gett.schedule.spec.mainloop import Multistage, WgmmaRS, WgmmaSS, WgmmaTf32

N = 4096

# name, subscripts, shapes, dtype, precision, main loop, whether the tensor cores multiply
STEPS = (
    ("simt", "ik,kj->ij", ((N, N), (N, N)), "float32", "ieee", Multistage, False),
    ("mma.sync", "ik,kj->ij", ((N, N), (N, N)), "float16", "ieee", Multistage, True),
    ("wgmma, shared memory", "ik,kj->ij", ((N, N), (N, N)), "float16", "ieee", WgmmaSS, True),
    ("wgmma, A in registers, TF32", "ik,kj->ij", ((N, N), (N, N)), "float32", "tf32", WgmmaTf32, True),
    ("wgmma, A in registers, two modes", "lik,jkl->ji", ((64, N, 64), (N, 64, 64)), "float16", "ieee", WgmmaRS, True),
)


def step(subscripts, shapes, dtype, precision, loop, tensor_cores):
    """The product's plan, and the schedule of that main loop that the cost model ranks first."""
    plan = gett.plan(subscripts, *((shape, dtype) for shape in shapes), arch="sm_90a", precision=precision)
    gemm = plan.steps[0].gemm
    for schedule in candidates(gemm, "sm_90a"):
        if type(schedule.mainloop) is not loop or schedule.packing is not None:
            continue
        if loop is not Multistage or schedule.mainloop.tensor_cores == tensor_cores:
            return gemm, schedule
    raise LookupError(f"no schedule of {loop.__name__}")


def instruction(text, schedule):
    """What multiplies, how many multiply-adds it makes, and whose instruction it is."""
    found = re.search(r"wgmma\.mma_async\S*\.m(\d+)n(\d+)k(\d+)\.\S+", text)
    if found:
        m, n, k = map(int, found.groups())
        return found[0], m * n * k, "a warpgroup's"
    if schedule.mainloop.tensor_cores:
        return "mma.sync.aligned.m16n8k16 (gett/kernels/ptx/mma_sync.cuh)", 16 * 8 * 16, "a warp's"
    return "fma.rn.f32 (gett/kernels/mainloop/simt.cuh)", 32, "a warp's"


def bytes_read(schedule, size):
    """Bytes of shared memory that are read for 1000 multiply-adds, each byte counted once for what reads it together.

    A warp reads the rows and columns of its own part of the tile; a wgmma 64 rows and all columns. Rows of A that are
    kept in registers are read once for all columns, by ordinary loads.
    """
    loop, (m, n, _) = schedule.mainloop, schedule.tiling.shape
    rows, columns = (m // loop.warps[0], n // loop.warps[1]) if isinstance(loop, Multistage) else (64, n)
    return 1000 * (rows + columns) * size / (rows * columns)


def main():
    for name, *asked in STEPS:
        gemm, schedule = step(*asked)
        text = render_kernel(gemm, schedule).source.text
        what, count, whose = instruction(text, schedule)
        print(f"=== {name}: {asked[0]} in {asked[2]}, precision {asked[3]}")
        for fact, value in schedule_facts(gemm, schedule):
            if fact in ("kernel", "load A", "load B", "store D"):
                print(f"{fact:12}{value}")
        print(f"{'instruction':12}{what}")
        print(f"{'':12}{whose}, {count} multiply-adds")
        print(f"{'reads':12}{bytes_read(schedule, 2 if asked[2] == 'float16' else 4):.1f} bytes for 1000 multiply-adds")
        for line in re.findall(r"^(typedef gett::.*|    gett::tma_load(?:_multicast)?\(.*);$", text, re.M)[:7]:
            print(f"    {line.strip()};")
        print()


if __name__ == "__main__":
    main()
