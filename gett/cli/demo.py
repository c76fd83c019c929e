"""`python -m gett demo`: two contractions of chemistry and a tensor network, planned, run and verified.

Owns the three problems and the table. The check is NumPy's einsum in double precision, on the host.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from gett.cli.device import Place, find_place, why_no_gpu
from gett.cli.execute import Outcome, execute
from gett.cli.exits import say
from gett.cli.problem import Problem, parse_problem
from gett.console.formatting import format_seconds, format_table


@dataclass(frozen=True, slots=True)
class Demo:
    """A problem with the sizes that suit a CPU and a GPU."""

    title: str
    subscripts: str
    cpu_extents: str
    cpu_dtype: str
    gpu_extents: str
    gpu_dtype: str

    def problem(self, *, gpu: bool) -> Problem:
        """The problem for one kind of machine."""
        if gpu:
            return parse_problem(self.subscripts, self.gpu_extents, self.gpu_dtype)
        return parse_problem(self.subscripts, self.cpu_extents, self.cpu_dtype)


DEMOS = (
    # R_ij^ab += sum_ef (ae|bf) t_ij^ef: integrals in chemists' order, so that two free and two contracted modes
    # alternate in the large operand.
    Demo(
        "CCSD particle-particle ladder",
        "aebf,ijef->ijab",
        "i=10,j=10,32",
        "float64",
        "i=24,j=24,64",
        "float64",
    ),
    # The small contracted mode of the triples correction: nearly all traffic is the result's.
    Demo(
        "CCSD(T) triples term",
        "bmji,cakm->kjicba",
        "m=24,a=16,i=16,10",
        "float32",
        "m=24,a=24,i=24,b=20,j=20,10",
        "float16",
    ),
    # Two block environments, three sites of a matrix product operator and of a matrix product state.
    Demo(
        "DMRG: H applied to three sites",
        "awb,bsc,ctd,due,wxsp,xytq,yzur,fze->apqrf",
        "w=5,x=5,y=5,z=5,s=3,t=3,u=3,p=3,q=3,r=3,48",
        "complex64",
        "w=6,x=6,y=6,z=6,s=4,t=4,u=4,p=4,q=4,r=4,160",
        "complex64",
    ),
)


def run_demo(device: str | None) -> int:
    """Run the demos and print their table; returns 0, or 1 where a result is wrong."""
    start = time.perf_counter()
    place = find_place(device)
    print(f"gett on {place.name}")
    if not place.is_gpu and device is None:
        print(f"(no GPU: {why_no_gpu()})")
    print()
    outcomes = []
    for number, demo in enumerate(DEMOS, 1):
        problem = demo.problem(gpu=place.is_gpu)
        say(f"[{number}/{len(DEMOS)}] {demo.title}: {problem.subscripts} ...", end="")
        outcome = execute(problem, place, host_reference=True, seed=number)
        say(
            f" planned in {format_seconds(outcome.plan_seconds)}, ran in "
            f"{format_seconds(outcome.timing.seconds)}, {'right' if outcome.verdict.ok else 'WRONG'}"
        )
        outcomes.append((demo.title, outcome))
    say("")
    print("\n".join(demo_table(outcomes, place)))
    good = all(o.verdict.ok for _, o in outcomes)
    where = "its error bound around NumPy's double-precision einsum"
    if good:
        print(f"\nAll verified: every element is within {where}. {time.perf_counter() - start:.1f} s in all.")
    else:
        print(f"\nWRONG: an element is outside {where}.")
    return 0 if good else 1


def demo_table(outcomes: list[tuple[str, Outcome]], place: Place) -> list[str]:
    """One line a demo: what, shape, time, rates, error, verdict."""
    rows = []
    for title, o in outcomes:
        seconds = o.timing.seconds
        rows.append(
            [
                title,
                " x ".join(map(str, o.problem.shape(o.problem.output))),
                o.problem.dtype,
                f"{1e3 * seconds:.3f}",
                f"{o.plan.flops / seconds / 1e9:.1f}",
                f"{o.plan.bytes / seconds / (1e12 if place.is_gpu else 1e9):.2f}",
                f"{o.verdict.ratio:.2g}",
                "yes" if o.verdict.ok else "NO",
            ]
        )
    header = ["what", "result", "dtype", "ms", "GFLOP/s", "TB/s" if place.is_gpu else "GB/s", "error/bound", "verified"]
    return format_table(header, rows, left=3)
