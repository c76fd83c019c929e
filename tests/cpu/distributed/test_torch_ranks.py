"""Slices over the ranks of a process group of PyTorch, which are processes."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from problems import operands, plan, variables
from rank_cases import RankCases, Results, results_of

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


@pytest.mark.slow
class TestGroups(RankCases):
    """Process groups of PyTorch."""

    def run(self, case: str, folder: Path, ranks: int = 4, *further: str) -> tuple[list[str], Results]:
        start("rank_program.py", case, folder, ranks, *further)
        return results_of(folder, ranks)

    def check_survivors(self, texts: list[str]) -> None:
        assert texts[3] == ""
        assert all("rank 3 has ended" in text for text in texts[:3]), texts


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
