"""PySCF's RCCSD with its own `lib.einsum` and with gett's in its place: seconds and energies.

`python -m benchmarks.pyscf_ccsd --json pyscf.json`: H2O, cc-pVTZ, one thread. PySCF's own forms products by NumPy, or
by TBLIS where pytblis is installed: both are measured. They take turns, after one turn that is not counted; the
shortest of each counts. Owns the molecule and the record; the chart of the README draws it.
"""

from __future__ import annotations

import os

if __name__ == "__main__":
    for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[_name] = "1"  # before NumPy and PySCF are loaded
    if hasattr(os, "sched_setaffinity"):  # gett's own threads are as many as the processors that it may use
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import argparse
import contextlib
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import environment
from benchmarks.records import write_text

ATOMS = "O 0 0 0.1173; H 0 0.7572 -0.4692; H 0 -0.7572 -0.4692"


@contextlib.contextmanager
def einsum_of(function: Callable[..., Any], backend: str | None = None) -> Iterator[None]:
    """PySCF with another `lib.einsum`, and with another backend of its own."""
    from pyscf import lib
    from pyscf.lib import numpy_helper

    before = lib.einsum, numpy_helper.EINSUM_BACKEND
    lib.einsum, numpy_helper.EINSUM_BACKEND = function, backend or before[1]
    try:
        yield
    finally:
        lib.einsum, numpy_helper.EINSUM_BACKEND = before


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write; 1 if the energies differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--basis", default="cc-pvtz")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json")
    options = parser.parse_args(arguments)
    import pyscf
    from pyscf import cc, gto, lib, scf

    import gett

    lib.num_threads(1)
    molecule = gto.M(atom=ATOMS, basis=options.basis, verbose=0)
    field = scf.RHF(molecule).run(conv_tol=1e-12)
    ways: dict[str, tuple[Callable[..., Any], str | None]] = {
        "PySCF, NumPy": (lib.einsum, "numpy"),
        "PySCF, TBLIS": (lib.einsum, "pytblis"),
        "gett": (gett.einsum, None),
    }
    if importlib.util.find_spec("pytblis") is None:
        del ways["PySCF, TBLIS"]
    wall: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    energies: dict[str, float] = {}
    for turn in range(options.turns + 1):
        for name, (function, backend) in ways.items():
            solver = cc.rccsd.RCCSD(field)
            with einsum_of(function, backend):
                start, used = time.perf_counter(), time.process_time()
                solver.kernel()
                if turn:
                    wall[name].append(time.perf_counter() - start)
                    cpu[name].append(time.process_time() - used)
            assert solver.converged
            energies[name] = float(solver.e_corr)
    rows = [
        {"einsum": n, "wall_s": min(wall[n]), "cpu_s": min(cpu[n]), "all_cpu_s": cpu[n], "energy": energies[n]}
        for n in ways
    ]
    apart = max(energies.values()) - min(energies.values())
    record = {
        "what": "RCCSD of H2O by pyscf.cc.rccsd, integrals and iterations, one thread; seconds, shortest of the turns",
        "basis": options.basis,
        "functions": int(molecule.nao),
        "pyscf": pyscf.__version__,
        "processor": environment.processor(),
        "environment": environment.describe(),
        "energies differ by": apart,
        "rows": rows,
    }
    if options.json:
        write_text(json.dumps(record, indent=1) + "\n", options.json)
    for row in rows:
        print(f"{row['einsum']:18s} {row['wall_s']:7.2f} s {row['cpu_s']:7.2f} s of CPU   E = {row['energy']:.15f}")
    print(f"energies differ by {apart:.1e}")
    return int(apart > 1e-9)


if __name__ == "__main__":
    sys.exit(main())
