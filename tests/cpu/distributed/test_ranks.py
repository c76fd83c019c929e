"""Slices over the ranks of an MPI communicator, which are processes: mpiexec runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from problems import mpiexec, variables
from rank_cases import RankCases, Results, results_of

HERE = Path(__file__).parent


class TestMpi(RankCases):
    """mpi4py's communicators."""

    def run(self, case: str, folder: Path, ranks: int = 4, *further: str) -> tuple[list[str], Results]:
        folder.mkdir(exist_ok=True)
        command = [mpiexec(), "-n", str(ranks), sys.executable, str(HERE / "rank_program.py"), case, str(folder)]
        subprocess.run([*command, *further], env=variables(), capture_output=True, timeout=100, check=False)
        return results_of(folder, ranks)
