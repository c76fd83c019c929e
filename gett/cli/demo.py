"""`python -m gett demo`: two contractions of chemistry and a tensor network, verified and timed beside NumPy's einsum.

Owns the three problems and the table. The check is NumPy's einsum in double precision, on the host. What gett is timed
beside is `numpy.einsum` on the CPU and `cupy.einsum` on a GPU, both along a path, the result in C order as gett's is.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from gett.cli.device import Place, find_place, why_no_gpu
from gett.cli.execute import Outcome, execute
from gett.cli.exits import say
from gett.cli.measure import time_cpu, time_gpu
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


# NumPy's own default keeps intermediates below the largest operand, and sums a network all at once where it cannot.
GREEDY = ("greedy", 1 << 62)


def run_demo(device: str | None) -> int:
    """Run the demos and print their table; returns 0, or 1 where a result is wrong."""
    start = time.perf_counter()
    place = find_place(device)
    print(f"gett on {place.name}")
    if not place.is_gpu and device is None:
        print(f"(no GPU: {why_no_gpu()})")
    print()
    outcomes: list[tuple[str, Outcome]] = []
    rivals = []
    rival = f"{place.xp.__name__}.einsum"
    for number, demo in enumerate(DEMOS, 1):
        problem = demo.problem(gpu=place.is_gpu)
        say(f"[{number}/{len(DEMOS)}] {demo.title}: {problem.subscripts} ...", end="")
        outcome = execute(problem, place, host_reference=True, seed=number)
        rivals.append(_seconds_of_einsum(outcome, place))
        say(
            f" planned in {format_seconds(outcome.plan_seconds)}, ran in "
            f"{format_seconds(outcome.timing.seconds)}, {'right' if outcome.verdict.ok else 'WRONG'}; "
            f"{rival} in {format_seconds(rivals[-1])}"
        )
        outcomes.append((demo.title, outcome))
    say("")
    print("\n".join(demo_table(outcomes, rivals, place)))
    ratios = [seconds / o.timing.seconds for seconds, (_, o) in zip(rivals, outcomes, strict=True)]
    print("\n" + compared(rival, ratios))
    good = all(o.verdict.ok for _, o in outcomes)
    where = "its error bound around NumPy's double-precision einsum"
    if good:
        print(f"All verified: every element is within {where}. {time.perf_counter() - start:.1f} s in all.")
    else:
        print(f"WRONG: an element is outside {where}.")
    return 0 if good else 1


def compared(rival: str, ratios: list[float]) -> str:
    """Who is faster by how much, in one sentence."""
    mean = statistics.geometric_mean(ratios)
    span = f"{min(ratios):.2g} to {max(ratios):.2g}"
    if mean >= 1:
        return f"gett is {mean:.2g} times as fast as {rival} in the geometric mean ({span})."
    return f"gett is slower than {rival}: {mean:.2g} times as fast in the geometric mean ({span})."


def _seconds_of_einsum(outcome: Outcome, place: Place) -> float:
    """Seconds of the array library's own einsum, with its result in C order."""
    xp, problem = place.xp, outcome.problem

    def call() -> None:
        xp.ascontiguousarray(xp.einsum(problem.subscripts, *outcome.operands, optimize=GREEDY))

    return (time_gpu([call]) if place.is_gpu else time_cpu(call)).seconds


def demo_table(outcomes: list[tuple[str, Outcome]], rivals: list[float], place: Place) -> list[str]:
    """One line a demo: what, shape, dtype, gett's time and rate, the array library's time, the ratio, verdict."""
    rows = []
    for (title, o), rival in zip(outcomes, rivals, strict=True):
        seconds = o.timing.seconds
        rows.append(
            [
                title,
                " x ".join(map(str, o.problem.shape(o.problem.output))),
                o.problem.dtype,
                f"{1e3 * seconds:.3f}",
                f"{o.plan.flops / seconds / 1e9:.1f}",
                f"{1e3 * rival:.3f}",
                f"{rival / seconds:.2f}",
                "yes" if o.verdict.ok else "NO",
            ]
        )
    name = place.xp.__name__
    header = ["what", "result", "dtype", "gett ms", "GFLOP/s", f"{name} ms", "times as fast", "verified"]
    return format_table(header, rows, left=3)
