"""Other libraries' own tests: where they are, which of them run with gett, and what came of them.

Nothing of them is kept here. A library that installs no tests has them in its source archive, which pip downloads for
the version that is installed. `GETT_TEST_ARCHIVES` names a folder where archives are looked for first.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ARCHIVES = "GETT_TEST_ARCHIVES"


@dataclass(frozen=True, slots=True)
class Suite:
    """Some tests of a library.

    Attributes:
        library: Whose they are; also what the plugin changes.
        files: Modules of its tests: below its `tests` folder, or where it installs them.
        least: How many pass by contractions of gett at least.
        arguments: Further arguments of pytest.
        part: Which of `parts` equal shares of its tests.
        parts: Into how many shares they are dealt, one by one.
    """

    library: str
    files: tuple[str, ...]
    least: int
    arguments: tuple[str, ...] = ()
    part: int = 0
    parts: int = 1

    def __repr__(self) -> str:
        share = f"-{self.part}" if self.parts > 1 else ""
        return f"{self.library}-{Path(self.files[0]).stem.removeprefix('test_')}{share}"


def run_suite(suite: Suite, folder: Path) -> dict[str, Any]:
    """Run a suite in a process of its own and count; it is skipped where the library is missing.

    Args:
        suite: What is run.
        folder: Of what is unpacked and written.
    """
    if importlib.util.find_spec(suite.library) is None:
        pytest.skip(f'{suite.library} is not installed: pip install -e ".[third-party]"')
    where = _installed(suite.library) or _unpacked(suite.library, folder)
    record = folder / f"{suite}.json"
    command = [
        sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(where), "-p", "no:cacheprovider",
        "-p", "tests.third_party.with_gett", "--with-gett", suite.library, "--record", str(record),
        "--dealt", str(suite.part), str(suite.parts), *suite.arguments,
        *(str(where / name) for name in suite.files),
    ]  # fmt: skip
    own = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    assert record.exists(), done.stdout + done.stderr
    found: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
    found["text"] = done.stdout[-20_000:]
    return found


def _installed(library: str) -> Path | None:
    """The folder of tests that is installed with a library."""
    spec = importlib.util.find_spec(library)
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "tests"
    return folder if folder.exists() else None


def _unpacked(library: str, folder: Path) -> Path:
    """The folder of tests in a library's source archive, under a name that no other library has."""
    target = folder / f"{library}_tests"
    if not target.exists():
        with tarfile.open(_archive(library, folder)) as archive:
            archive.extractall(folder, filter="data")
        (folder / f"{library}-{version(library)}" / "tests").rename(target)
    return target


def _archive(library: str, folder: Path) -> Path:
    """The source archive of the version that is installed; the test is skipped where there is no way to it."""
    name = f"{library}-{version(library)}.tar.gz"
    given = os.environ.get(ARCHIVES)
    if given and (Path(given) / name).exists():
        return Path(given) / name
    options = ["--no-deps", "--no-binary", library, "--retries", "1", "--timeout", "20", "-d", str(folder)]
    command = [sys.executable, "-m", "pip", "download", "-q", *options, f"{library}=={version(library)}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not (folder / name).exists():
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        pytest.skip(f"{library} installs no tests, and pip has no source archive of it: {why}")
    return folder / name
