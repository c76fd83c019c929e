"""Slices over executors: the same bits for any number of workers, failures, and runs that go on."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from problems import SUBSCRIPTS, operands, plan, same_bits

import gett
from gett.distributed import executors
from gett.slices.distributed_plan import Job
from gett.slices.recipe import Worker

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
FORK = multiprocessing.get_context("fork") if os.name == "posix" else None
posix = pytest.mark.skipif(FORK is None, reason="worker processes are forked")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_the_result_is_that_of_the_whole_contraction(dtype):
    arrays = operands(dtype=dtype, exact=True)
    made = plan(arrays)
    assert made.slices > 1
    with ThreadPoolExecutor(3) as pool:
        found = gett.distributed.contract(made, arrays, executor=pool)
    assert same_bits(found, gett.einsum(SUBSCRIPTS, *arrays))


@posix
def test_any_number_of_workers_gives_the_same_bits():
    arrays = operands()
    made = plan(arrays)
    results = []
    for workers in (1, 2, 3, 4, 5):
        with ThreadPoolExecutor(workers) as pool:
            results.append(gett.distributed.contract(made, arrays, executor=pool, slices=60))
    for workers in (1, 3):
        with ProcessPoolExecutor(workers, FORK) as pool:
            results.append(gett.distributed.contract(made, arrays, executor=pool, slices=60))
    assert all(same_bits(results[0], x) for x in results)
    np.testing.assert_allclose(results[0], np.einsum(SUBSCRIPTS, *arrays, optimize=True), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("subscripts", ["ij,jk->ik", "ij,kj->", "ij->j", "bij,bjk->bki"])
def test_a_plan_without_slices_is_cut_for_the_workers(subscripts):
    rng = np.random.default_rng(0)
    extents = dict(zip("bijk", (5, 6, 7, 9), strict=True))
    terms = subscripts.split("->")[0].split(",")
    arrays = [rng.integers(-4, 5, [extents[x] for x in term]).astype(float) for term in terms]
    report = gett.distributed.Report()
    with ThreadPoolExecutor(3) as pool:
        found = gett.distributed.contract(gett.plan(subscripts, *arrays), arrays, executor=pool, report=report)
    assert same_bits(np.asarray(found), np.asarray(np.einsum(subscripts, *arrays)))
    assert sum(report.slices.values()) >= 3


def test_factors_addend_result_and_epilogue_count_once():
    arrays = operands(exact=True)
    c, out = np.full((24, 24), 3.0), np.empty((24, 24))
    made = plan(arrays, epilogue=lambda d, bias: gett.ops.relu(d) + bias, epilogue_args=(np.ones(24),))
    bias = np.arange(24.0)
    with ThreadPoolExecutor(2) as pool:
        found = gett.distributed.contract(
            made, arrays, executor=pool, c=c, alpha=2, beta=-1, out=out, epilogue_args=(bias,)
        )
    assert found is out
    assert same_bits(out, np.maximum(2 * np.einsum(SUBSCRIPTS, *arrays, optimize=True) - c, 0) + bias)


def test_strided_operands_travel():
    arrays = [x.transpose(0, 2, 1)[::2] for x in operands(exact=True)]
    with ThreadPoolExecutor(2) as pool:
        found = gett.distributed.contract(gett.plan(SUBSCRIPTS, *arrays), arrays, executor=pool)
    assert same_bits(found, np.einsum(SUBSCRIPTS, *arrays, optimize=True))


@posix
def test_operands_go_to_each_worker_once():
    arrays, sent = operands(), []

    class Watched(ProcessPoolExecutor):
        def submit(self, task, key, payload, node):
            sent.append(payload is not None)
            return super().submit(task, key, payload, node)

    with Watched(2, FORK) as pool:
        started = [ProcessPoolExecutor.submit(pool, time.sleep, 0.5) for _ in range(2)]
        for future in started:  # a worker that begins late asks for operands with each task that it is given
            future.result()
        gett.distributed.contract(plan(arrays), arrays, executor=pool, slices=64)
    assert len(sent) > 8
    assert 2 <= sum(sent) <= 4  # a worker may take two tasks with operands before the other has begun


def test_a_worker_without_operands_asks_for_them():
    arrays = operands(exact=True)

    class Forgetful(ThreadPoolExecutor):
        def submit(self, task, key, payload, node):
            executors.forget(key)
            return super().submit(task, key, payload, node)

    with Forgetful(1) as pool:
        found = gett.distributed.contract(plan(arrays), arrays, executor=pool, slices=16)
    assert same_bits(found, gett.einsum(SUBSCRIPTS, *arrays))


def test_the_report_says_who_did_how_much():
    arrays, report = operands(), gett.distributed.Report()
    with ThreadPoolExecutor(1) as pool:
        gett.distributed.contract(plan(arrays), arrays, executor=pool, slices=64, report=report)
    text = str(report)
    done = sum(report.slices.values())
    assert text.startswith(f"{done} slices in ")
    assert text.endswith(f"FLOP/s: {executors.name(-1)} {done}")
    report.resumed = 3
    assert str(report).endswith(", 3 more were saved before")


def test_nothing_is_kept_when_the_contraction_is_done():
    arrays = operands()
    with ThreadPoolExecutor(2) as pool:
        gett.distributed.contract(plan(arrays), arrays, executor=pool)
    assert not executors._kept


def test_a_failure_stops_the_others_and_is_told(monkeypatch):
    arrays, begun, summed = operands(), [], Worker.sum
    failed = threading.Event()

    def fail(self, node, each=lambda: None):
        begun.append(node)
        if len(begun) == 2:
            failed.set()
            raise FloatingPointError("slice went wrong")
        failed.wait(10)
        return summed(self, node, each)

    monkeypatch.setattr(Worker, "sum", fail)
    with (
        ThreadPoolExecutor(2) as pool,
        pytest.raises(gett.DistributedError, match="a worker failed: FloatingPointError: slice went wrong"),
    ):
        gett.distributed.contract(plan(arrays), arrays, executor=pool, slices=64)
    assert len(begun) < 16
    assert not executors._kept


@posix
def test_a_lost_worker_is_told(monkeypatch):
    monkeypatch.setattr(Worker, "sum", lambda *args: os._exit(3))
    arrays = operands()
    with ProcessPoolExecutor(2, FORK) as pool, pytest.raises(gett.DistributedError, match="the executor lost a worker"):
        gett.distributed.contract(plan(arrays), arrays, executor=pool)


def test_a_worker_that_hangs_is_given_up(monkeypatch):
    go_on = threading.Event()
    monkeypatch.setattr(Worker, "sum", lambda *args: go_on.wait(20))
    arrays = operands()
    start = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(gett.DistributedError, match=r"no task was finished within 0\.2 s"):
            gett.distributed.contract(plan(arrays), arrays, executor=pool, timeout=0.2)
        assert time.monotonic() - start < 10
        go_on.set()


def test_workers_that_plan_differently_are_not_added(monkeypatch):
    arrays, names = operands(), iter("abcdefghijklmnopqrstuvwxyz" * 3)
    monkeypatch.setattr(executors, "name", lambda device: next(names))
    made = Worker._digest
    monkeypatch.setattr(Worker, "_digest", lambda self: made(self) + next(names))

    class Forgetful(ThreadPoolExecutor):
        def submit(self, task, key, payload, node):
            executors.forget(key)
            return super().submit(task, key, payload, node)

    with Forgetful(1) as pool, pytest.raises(gett.DistributedError, match="plan the contraction in different ways"):
        gett.distributed.contract(plan(arrays), arrays, executor=pool, slices=16)


def test_finished_sums_are_taken_and_the_folder_goes(tmp_path, monkeypatch):
    arrays, folder = operands(), tmp_path / "sums"
    with ThreadPoolExecutor(1) as pool:
        want = gett.distributed.contract(plan(arrays), arrays, executor=pool, slices=64)
        summed, count = Worker.sum, [0]

        def sum_some(self, node, each=lambda: None):
            count[0] += 1
            if count[0] == 3:
                raise MemoryError("stop")
            return summed(self, node, each)

        monkeypatch.setattr(Worker, "sum", sum_some)
        with pytest.raises(gett.DistributedError, match="MemoryError: stop"):
            gett.distributed.contract(plan(arrays), arrays, executor=pool, slices=64, resume=folder)
        kept = sorted(p.name for p in folder.iterdir())
        assert kept[0] == "contraction.json"
        assert len(kept) > 2
        report = gett.distributed.Report()
        # Other workers and so other tasks: what is saved counts all the same.
        with ThreadPoolExecutor(3) as more:
            found = gett.distributed.contract(
                plan(arrays), arrays, executor=more, slices=64, resume=folder, report=report
            )
    assert same_bits(found, want)
    assert report.resumed > 0
    assert report.resumed + sum(report.slices.values()) >= 64
    assert not folder.exists()


def test_a_killed_run_goes_on(tmp_path):
    arrays, folder = operands(), tmp_path / "sums"
    with ThreadPoolExecutor(2) as pool:
        want = gett.distributed.contract(plan(arrays), arrays, executor=pool, slices=64)
    command = [sys.executable, str(HERE / "killed_run.py"), str(folder)]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        end = time.monotonic() + 60
        while len(list(folder.glob("sum-*"))) < 2 and time.monotonic() < end:
            time.sleep(0.01)
        process.kill()
    left = list(folder.glob("sum-*"))
    assert len(left) >= 2
    report = gett.distributed.Report()
    with ThreadPoolExecutor(2) as pool:
        found = gett.distributed.contract(plan(arrays), arrays, executor=pool, slices=64, resume=folder, report=report)
    assert same_bits(found, want)
    assert report.resumed > 0


def test_sums_of_another_run_are_refused(tmp_path):
    arrays = operands()

    def call(arrays, **options):
        with ThreadPoolExecutor(1) as pool:
            gett.distributed.contract(plan(arrays), arrays, executor=pool, slices=16, resume=tmp_path, **options)

    (tmp_path / "contraction.json").write_text("{}")
    with pytest.raises(gett.DistributedError, match="different contraction and terms and operands"):
        call(arrays)
    (tmp_path / "contraction.json").write_text("{")
    with pytest.raises(gett.DistributedError, match="resume="):
        call(arrays)
    (tmp_path / "contraction.json").unlink()
    (tmp_path / "mine.txt").write_text("kept")
    call(arrays)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_a_damaged_sum_is_named(tmp_path, monkeypatch):
    arrays = operands()
    monkeypatch.setattr("gett.distributed.saved.Saved.end", lambda self: None)

    def call():
        with ThreadPoolExecutor(1) as pool:
            return gett.distributed.contract(plan(arrays), arrays, executor=pool, slices=16, resume=tmp_path)

    want = call()
    damaged = next(iter(tmp_path.glob("sum-*")))
    damaged.write_bytes(damaged.read_bytes()[:100])
    with pytest.raises(gett.DistributedError, match=rf"{damaged.name} cannot be read"):
        call()
    np.save(damaged, np.zeros(3))
    with pytest.raises(gett.DistributedError, match="holds another array"):
        call()
    damaged.unlink()
    assert same_bits(call(), want)


def test_progress_tells_slices_and_rate(capsys, monkeypatch):
    monkeypatch.setattr("gett.console.progress.DELAY_S", 0.0)
    arrays, summed = operands(), Worker.sum

    def slowly(self, node, each=lambda: None):
        time.sleep(0.1)
        return summed(self, node, each)

    monkeypatch.setattr(Worker, "sum", slowly)
    with ThreadPoolExecutor(1) as pool:
        gett.distributed.contract(plan(arrays), arrays, executor=pool, slices=64, progress=True)
    text = capsys.readouterr().err
    assert "slices" in text
    assert "FLOP/s" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give executor= or comm=, one of them"),
        ({"executor": 3}, r"executor=3 has no submit\(\)"),
        ({"comm": 3}, "comm=3 is no communicator of mpi4py"),
        ({"executor": "pool", "comm": 3}, "give executor= or comm=, one of them"),
        ({"executor": "pool", "root": 0}, "root=0 is a rank of comm="),
        ({"executor": "pool", "slices": 0}, "slices=0; it must be a number of at least 1"),
        ({"executor": "pool", "slices": 10**9}, "slices=1000000000: .* has at most"),
        ({"executor": "pool", "timeout": 0}, "timeout=0; it must be a number of seconds"),
        ({"executor": "pool", "arrays": None}, "arrays is None"),
        ({"executor": "pool", "contraction": "ij,jk"}, "str is no contraction"),
    ],
)
def test_bad_options_are_named(options, message):
    given = operands()
    with ThreadPoolExecutor(1) as pool:
        values = {"contraction": plan(given), "arrays": given, **options}
        if options.get("executor") == "pool":
            values["executor"] = pool
        contraction, arrays = values.pop("contraction"), values.pop("arrays")
        with pytest.raises(gett.OptionError, match=message):
            gett.distributed.contract(contraction, arrays, **values)


def test_arrays_that_do_not_fit_the_plan_are_named():
    arrays = operands()
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(gett.ShapeError, match="takes 3 operands, 2 were given"):
            gett.distributed.contract(plan(arrays), arrays[:2], executor=pool)
        with pytest.raises(gett.ShapeError, match="operand 1"):
            gett.distributed.contract(plan(arrays), [arrays[0], arrays[1][:, :3], arrays[2]], executor=pool)
        with pytest.raises(gett.OptionError, match="extent 0"):
            gett.distributed.contract(gett.plan("ij->j", np.ones((0, 3))), [np.ones((0, 3))], executor=pool)


def test_tasks_are_divided_by_workers_and_what_is_done():
    arrays = operands()
    seen = []

    def engine(job: Job, kind, given):
        seen.append(job)
        return iter(())

    from gett.slices.distributed_plan import distribute

    distribute(plan(arrays), engine, 64)(*arrays)
    (job,) = seen
    total = job.grid.parts * job.grid.summed
    for workers in (1, 3, 64):
        tasks = job.tasks(workers)
        assert sum(map(job.slices, tasks)) == total
        assert len(tasks) >= min(2 * workers, job.grid.parts * job.terms)
        done = tasks[::3]
        rest = job.tasks(workers, done)
        assert not set(done) & set(rest)
        assert sum(map(job.slices, rest)) == total - sum(map(job.slices, done))
