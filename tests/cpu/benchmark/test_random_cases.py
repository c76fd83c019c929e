"""The generated benchmark: the same cases everywhere, every kind of shape, limits kept; its report; odd extents."""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import ahead, distribution
from benchmarks.__main__ import main
from benchmarks.cases import ELEMENT_TYPES, Case, load_cases
from benchmarks.random_cases import (
    COUNT,
    EXTENTS,
    FEWEST_MODES,
    KINDS,
    LEAST_BYTES,
    MOST_BYTES,
    MOST_FLOPS,
    MOST_MODES,
    ODD,
    RIDGE,
    ROUND,
    TWOS,
    Numbers,
    random_cases,
)
from benchmarks.records import Measurement, Row, Run, from_json
from benchmarks.tasks import RANDOM_RIVALS
from gett.hw.archs import arch_facts
from gett.jit import kernel_cache
from tests.cpu.benchmark.benchmark_cases import refusal

FP16 = ELEMENT_TYPES["float16"]
CASES = random_cases()
ROOT = Path(__file__).parents[3]


def sides(case: Case) -> tuple[int, int, int, int]:
    """Batch, the longer and the shorter of M and N, K."""
    b, m, n, k = case.bmnk
    return b, max(m, n), min(m, n), k


# --- the cases


def test_the_cases_are_the_same_in_every_process():
    code = (
        "import hashlib\nfrom benchmarks.random_cases import random_cases\n"
        "text = repr([(c.name, c.einsum, c.extents, c.group) for c in random_cases()])\n"
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    digests = set()
    for seed in ("1", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout)
    assert len(digests) == 1
    assert len(digests.pop().strip()) == 64


def test_the_generator_is_splitmix64():
    # First outputs from seed 0 in the reference implementation of the published algorithm.
    numbers = Numbers()
    assert [numbers.next() for _ in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_draws_stay_in_their_range_and_reach_all_of_it():
    numbers = Numbers(3)
    assert {numbers.between(2, 5) for _ in range(200)} == {2, 3, 4, 5}
    assert {numbers.choice("abc") for _ in range(100)} == set("abc")
    orders = {tuple(numbers.shuffled(range(3))) for _ in range(200)}
    assert len(orders) == 6


def test_a_longer_list_begins_with_the_shorter_and_seeds_differ():
    assert len(CASES) == COUNT
    assert random_cases(7) == CASES[:7]
    other = random_cases(20, seed=1)
    assert {c.einsum for c in other} != {c.einsum for c in CASES[:20]}
    assert [c.group for c in other] == [c.group for c in CASES[:20]]
    for count, seed in ((0, 1), (1, -1)):
        with pytest.raises(ValueError, match="must be at least"):
            random_cases(count, seed)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_every_case_is_a_plain_contraction_within_the_limits(case):
    a, b, d = case.modes
    extents = dict(case.extents)
    assert set(a + b + d) == set(extents)
    for modes in (a, b, d):
        assert len(set(modes)) == len(modes) > 0
    # Batch modes are in all three tensors, the others in two: no sums of one operand, no broadcasts.
    assert {(x in a) + (x in b) + (x in d) for x in extents} <= {2, 3}
    assert set(extents.values()) <= set(EXTENTS)
    assert min(extents.values()) > 1
    assert LEAST_BYTES <= case.bytes(FP16) <= MOST_BYTES
    assert case.flops(FP16) <= MOST_FLOPS
    assert math.prod(case.bmnk) == case.volume
    if case.group == "twos":
        assert TWOS[0] <= list(extents.values()).count(2) <= TWOS[1]
    else:
        assert FEWEST_MODES <= len(extents) <= MOST_MODES
    assert max(case.bmnk[1:]) <= 1.5 * 2**20


def test_small_versions_equal_a_reference():
    for case in CASES:
        small = case.reduced(1 << 10, 1 << 12)
        assert small.elements <= 1 << 10
        assert small.volume <= 1 << 12
        a, b, d = (np.arange(math.prod(s), dtype=float).reshape(s) % 5 for s in small.shapes)
        assert np.einsum(small.einsum, a, b).shape == d.shape


# Recognised by sizes, not by the names under which the cases were drawn.
CLASSES = {
    "bound by arithmetic": lambda c: c.flops(FP16) / c.bytes(FP16) >= RIDGE,
    "long K, small M and N": lambda c: sides(c)[3] >= 16 * sides(c)[1] and sides(c)[3] >= 8192,
    "small K, huge D": lambda c: sides(c)[3] <= 64 and 2 * math.prod(c.shapes[2]) >= c.elements,
    "small N": lambda c: 1 < sides(c)[2] <= 32 and sides(c)[1] >= 4096,
    "matrix by vector": lambda c: sides(c)[2] == 1 and sides(c)[3] > 1,
    "outer product": lambda c: sides(c)[3] == 1 and sides(c)[2] > 1,
    "batched and small": lambda c: c.bmnk[0] >= 32 and max(c.bmnk[1:]) <= 128,
    "many modes of extent 2": lambda c: [e for _, e in c.extents].count(2) >= 12,
}


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_of_shapes_is_there_in_the_first_round_already(name):
    found = [c for c in CASES if CLASSES[name](c)]
    assert len(found) >= 3
    assert any(CLASSES[name](c) for c in CASES[: len(ROUND)])


def test_every_kind_is_drawn_and_names_say_which():
    assert set(ROUND) == set(KINDS) == {c.group for c in CASES}
    assert len({c.name for c in CASES}) == COUNT
    for i, case in enumerate(CASES):
        assert case.name == f"{i:02d}-{case.group}"
        assert len(case.name) <= 12  # the table's column


def test_the_unit_stride_of_each_tensor_lies_in_every_group():
    def group(case: Case, tensor: int) -> str:
        a, b, d = case.modes
        x = case.modes[tensor][-1]
        if x in a and x in b and x in d:
            return "batch"
        return "free" if x in d else "contracted"

    for tensor in (0, 1):
        assert {group(c, tensor) for c in CASES} == {"batch", "free", "contracted"}
    assert {group(c, 2) for c in CASES} == {"batch", "free"}
    # D follows A in some cases and B in others.
    assert {c.modes[2][-1] in c.modes[0] for c in CASES} == {True, False}


def test_extents_are_mixed_and_sizes_span_the_decades():
    extents = [e for c in CASES for _, e in c.extents if c.group != "twos"]
    assert set(ODD) <= set(extents)
    assert 0.25 < sum(e & (e - 1) == 0 for e in extents) / len(extents) < 0.75
    for i in (1, 2, 3):
        sizes = [c.bmnk[i] for c in CASES]
        assert min(sizes) == 1
        assert max(sizes) > 20_000
    assert max(c.bmnk[3] for c in CASES) > 500_000
    moved = [c.bytes(FP16) for c in CASES]
    assert min(moved) < 3e6
    assert max(moved) > 3e8


# --- odd and reduced extents


def test_odd_makes_all_extents_odd_and_keeps_the_rest():
    for case in load_cases():
        odd = case.odd()
        assert (odd.name, odd.einsum) == (case.name, case.einsum)
        for (label, e), (other, f) in zip(case.extents, odd.extents, strict=True):
            assert label == other
            assert f % 2 == 1
            assert f in (e, e - 1)
        assert odd.odd() == odd


def test_reduced_halves_the_longest_modes_only():
    case = Case("x", "abc,cd->abd", (("a", 2), ("b", 100), ("c", 7), ("d", 9)), "g")
    assert case.reduced(case.elements, case.volume) == case
    small = case.reduced(1000, 1 << 30)
    assert dict(small.extents) == {"a": 2, "b": 25, "c": 7, "d": 9}


# --- the command and its report


def made_run(ratios: list[float], kind: str = "gpu") -> Run:
    run = Run(kind, "float16", None, "a GPU", 4e12, 8e14, environment={"cases": "some cases"})
    for case, r in zip(CASES, ratios, strict=False):
        row = Row(case.name, case.einsum, dict(case.extents), case.bmnk, case.flops(FP16), case.bytes(FP16), 50.0)
        rivals = RANDOM_RIVALS if kind == "gpu" else ("numpy.einsum", "opt_einsum")
        row.times = {name: Measurement(100.0 * r * (1 + i)) for i, name in enumerate(rivals)}
        row.times["gett"] = Measurement(100.0)
        row.check = "right"
        run.rows.append(row)
    return run


def test_the_distribution_is_that_of_the_ratios():
    ratios = [0.5 + 0.05 * ((i * 37) % COUNT) for i in range(COUNT)]
    text = distribution.table(made_run(ratios))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 110
    line = next(x for x in lines if x.startswith("ratio to best cuTENSOR"))
    median, tenth, low, mean, count = map(float, line.split()[4:])
    assert median == pytest.approx(statistics.median(ratios), abs=0.0051)
    assert tenth == pytest.approx(np.percentile(ratios, 10), abs=0.0051)
    assert low == pytest.approx(min(ratios), abs=0.0051)
    assert mean == pytest.approx(statistics.geometric_mean(ratios), abs=0.0051)
    assert count == COUNT
    shares = next(x for x in lines if x.startswith("share of the roofline"))
    assert "50.0%" in shares
    under = sum(r < 0.8 for r in ratios)
    assert any(x.startswith(f"under 0.8: {under} of {COUNT}") for x in lines)
    slowest = CASES[ratios.index(min(ratios))].name
    assert f"lowest: {slowest} {min(ratios):.2f}" in text
    assert all(any(x.startswith(kind) for x in lines) for kind in KINDS)
    assert all(any(x.startswith(c.name) for x in lines) for c in CASES)


def test_a_rival_that_never_ran_leaves_dashes():
    run = made_run([1.0] * 5)
    for row in run.rows:
        for name in RANDOM_RIVALS:
            row.times[name] = Measurement(error="not installed")
    lines = distribution.table(run).splitlines()
    assert next(x for x in lines if x.startswith("ratio to best cuTENSOR")).split()[-1] == "-"
    assert next(x for x in lines if x.startswith("share of the roofline")).split()[-1] == "5"
    assert distribution.spread([]) is None
    assert distribution.spread([2.0]) == distribution.Spread(2.0, 2.0, 2.0, 2.0, 1)
    with pytest.raises(ValueError, match="positive"):
        distribution.spread([0.0])


@pytest.mark.slow
@pytest.mark.usefixtures("quick_machine")
def test_the_random_command_runs_without_a_gpu(tmp_path, capsys):
    json_path, png = tmp_path / "r.json", tmp_path / "r.png"
    options = ["random", "--cpu", "--count", "20", "--seed", "7", "--dtype", "float32"]
    code = main([*options, "--json", str(json_path), "--plot", str(png)])
    printed = capsys.readouterr().out
    assert code == 0, printed
    (run,) = from_json(json_path.read_text())
    assert [r.case for r in run.rows] == [c.name for c in random_cases(20, 7)]
    assert all(r.check == "right" for r in run.rows)
    assert "20 generated cases, seed 7" in printed
    assert "ratio to numpy.einsum" in printed
    assert png.stat().st_size > 10_000
    one = CASES[3].name
    assert main(["random", "--cpu", "--case", one, "--no-check"]) == 0
    assert "1 generated cases" in capsys.readouterr().out


@pytest.mark.usefixtures("quick_machine")
def test_the_odd_command_makes_extents_odd(tmp_path, capsys):
    path = tmp_path / "odd.json"
    code = main(["tccg", "--odd", "--cpu", "--case", "abj-bka-kj", "--scale", "1e-3", "--quick", "--json", str(path)])
    printed = capsys.readouterr().out
    assert code == 0, printed
    (run,) = from_json(path.read_text())
    assert all(e % 2 for e in run.rows[0].extents.values())
    assert "every extent odd" in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--count", "0"], "count is 0"), (["--case", "99-none"], "no case is named '99-none'")],
)
def test_bad_options_are_named(options, message, capsys):
    assert message in refusal(capsys, "random", *options)


# --- compiling ahead


@pytest.mark.slow
def test_compiling_ahead_leaves_what_a_call_will_look_up(tmp_path, monkeypatch):
    monkeypatch.setenv("GETT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("GETT_CACHE_DISABLE", raising=False)
    case = Case("00-small", "ab,bc->ca", (("a", 64), ("b", 64), ("c", 64)), "any")
    facts = arch_facts("sm_80")
    before = kernel_cache().info()
    assert before.directory is not None
    assert before.directory.is_relative_to(tmp_path)
    assert ahead.compile_ahead([case], "float32", None, facts) == 1  # in another process
    family = ahead.compile_case(ahead.make_job(case, "float32", None, facts))
    after = kernel_cache().info()
    assert family == "simt"
    assert after.misses == before.misses
    assert after.disk_hits == before.disk_hits + 1


def test_without_a_disk_cache_nothing_is_compiled_ahead(monkeypatch):
    monkeypatch.setenv("GETT_CACHE_DISABLE", "1")
    assert ahead.compile_ahead([CASES[0]], "float16", None, arch_facts("sm_90a")) == 0
