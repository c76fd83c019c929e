"""Slices over the ranks of a process group of PyTorch, which are processes."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from problems import SUBSCRIPTS, operands, plan, same_bits, variables

import gett
from gett.distributed import places, torch_group

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("PyTorch has no gloo here", allow_module_level=True)

HERE = Path(__file__).parent


def free_port() -> str:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def start(program: str, case: str, folder: Path, ranks: int, *further: str) -> tuple[list[str], str]:
    """What each rank wrote, and what all printed. No rank may hang, and only a killed one dies of a signal."""
    folder.mkdir(exist_ok=True)
    common = {**variables(), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": str(ranks)}
    log = folder / "log"
    with log.open("wb") as lines:
        started = [
            subprocess.Popen(
                [sys.executable, str(HERE / program), case, str(folder), *further],
                env={**common, "RANK": str(r), "LOCAL_RANK": str(r)}, stdout=lines, stderr=lines,
            )
            for r in range(ranks)
        ]  # fmt: skip
        try:
            codes = [process.wait(100) for process in started]
        finally:
            for process in started:
                process.kill()
    printed = log.read_text()
    assert all(code >= 0 or (case == "killed" and code == -signal.SIGKILL) for code in codes), printed
    texts = [folder / f"{r}.txt" for r in range(ranks)]
    return [p.read_text() if p.exists() else "" for p in texts], printed


def run(case: str, folder: Path, ranks: int = 4, *further: str) -> tuple[list[str], list[np.ndarray | None]]:
    """What each rank wrote: its text, and its result where it has one."""
    texts, _ = start("rank_program.py", case, folder, ranks, *further)
    results = [folder / f"{r}.npy" for r in range(ranks)]
    return texts, [np.load(p) if p.exists() else None for p in results]


@pytest.fixture(scope="module")
def want() -> np.ndarray:
    """The result of one worker."""
    arrays = operands(7)
    with ThreadPoolExecutor(1) as pool:
        found: np.ndarray = gett.distributed.contract(plan(arrays), arrays, executor=pool, slices=64)
    return found


@pytest.mark.parametrize("ranks", [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3)), 4])
def test_any_number_of_ranks_gives_the_same_bits_everywhere(tmp_path, want, ranks):
    texts, results = run("given" if ranks % 2 else "all", tmp_path, ranks)
    assert all(x is not None and same_bits(x, want) for x in results), texts
    workers, slices, resumed = map(int, texts[0].split())
    assert (workers, resumed) == (ranks, 0)
    assert slices >= 64


@pytest.mark.slow
def test_one_rank_gets_the_result_where_it_is_asked_for(tmp_path, want):
    _, results = run("root", tmp_path, 3)
    assert results[:2] == [None, None]
    assert same_bits(results[2], want)


@pytest.mark.slow
def test_all_ranks_write_into_their_own_result(tmp_path, want):
    _, results = run("out", tmp_path, 2)
    assert all(same_bits(x, want) for x in results)


@pytest.mark.slow
def test_integers_are_exact(tmp_path):
    _, results = run("exact", tmp_path, 3)
    right = gett.einsum(SUBSCRIPTS, *operands(7, exact=True))
    assert all(same_bits(x, right) for x in results)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("differ", "DistributedError: operand 1 of rank 3 differs from rank 0's"),
        ("fewer", "DistributedError: rank 3 gives 2 operands, rank 0 gives 3"),
        ("fails", "FloatingPointError: slice went wrong"),
        ("bad", "ShapeError: the plan xab,xbc,xcd->ad takes 3 operands, 1 were given"),
        ("nothing", "OptionError: arrays is None on rank 0"),
    ],
)
def test_an_error_is_one_of_every_rank(tmp_path, case, message):
    texts, results = run(case, tmp_path)
    assert results == [None] * 4
    for rank, text in enumerate(texts):
        if case == "fails" and rank == 3:
            assert text == ""  # no error of gett's: it ends the program
        else:
            assert message in text


@pytest.mark.slow
@pytest.mark.parametrize("case", ["late", "hangs"])
def test_no_rank_waits_for_ever(tmp_path, case):
    texts, results = run(case, tmp_path)
    assert results == [None] * 4
    assert "without a sign of rank" in texts[0]
    assert all(text.startswith("DistributedError: ") for text in texts)


def test_a_killed_rank_ends_the_run_and_its_sums_are_not_lost(tmp_path, want):
    sums = tmp_path / "sums"
    texts, results = run("killed", tmp_path / "first", 4, str(sums))
    assert results == [None] * 4
    assert texts[3] == ""
    assert all("rank 3 has ended" in text for text in texts[:3]), texts
    assert list(sums.glob("sum-*"))
    assert not list(sums.glob(".sum-*"))
    texts, results = run("all", tmp_path / "second", 2, str(sums))
    assert all(x is not None and same_bits(x, want) for x in results), texts
    assert int(texts[0].split()[2]) > 0
    assert not sums.exists()


@pytest.mark.parametrize(
    ("case", "ranks"),
    [("tensors", 3), pytest.param("large", 4, marks=pytest.mark.slow), ("several", 3)],
)
def test_programs_of_ranks(tmp_path, case, ranks):
    texts, printed = start("torch_program.py", case, tmp_path, ranks)
    assert texts == ["good"] * ranks, printed


@pytest.mark.slow
def test_torchrun_starts_ranks(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port()]
    done = subprocess.run(
        [*command, str(HERE / "torch_program.py"), "tensors", str(tmp_path)],
        env=variables(), capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / f"{r}.txt").read_text() for r in range(2)] == ["good"] * 2


def test_groups_without_gloo_are_refused(monkeypatch):
    arrays = operands(7)
    monkeypatch.setattr(sys.modules["gett.distributed.contract"], "is_group", lambda comm: True)
    monkeypatch.setattr(torch.distributed, "get_backend_config", lambda group: "cuda:nccl")
    with pytest.raises(gett.OptionError, match=r'cuda:nccl.*init_process_group\("cpu:gloo,cuda:nccl"\)'):
        gett.distributed.contract(plan(arrays), arrays, comm=SimpleNamespace())
    assert not torch_group._frames


def test_torchrun_says_which_gpu_a_rank_takes(monkeypatch):
    monkeypatch.setenv("SLURM_LOCALID", "0")
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert places.local_number() == 3
