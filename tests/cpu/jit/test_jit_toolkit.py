"""Where the compiler and CUDA's headers are found, and what is said where they are not."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from gett.codegen.records import KernelSource
from gett.errors import INSTALL_GPU, MissingPackageError
from gett.jit import compile as compile_module
from gett.jit import compile_kernel, compile_uncached, toolkit
from tests.cpu.jit.cuda_texts import GOOD, HALF

pytestmark = pytest.mark.usefixtures("own_cache")

ROOT = Path(__file__).parents[3]


@pytest.fixture
def _forget_toolkits() -> Iterator[None]:
    toolkit._find.cache_clear()
    yield
    toolkit._find.cache_clear()


class Finder:
    """Stands in for cuda-pathfinder: header directories by library, and the library that it would load."""

    class DynamicLibNotFoundError(RuntimeError):
        pass

    def __init__(self, headers: dict[str, str], library: Path | None = None) -> None:
        self.headers, self.library, self.loaded = headers, library, 0

    def find_nvidia_header_directory(self, name: str) -> str | None:
        return self.headers.get(name)

    def load_nvidia_dynamic_lib(self, name: str) -> SimpleNamespace:
        self.loaded += 1
        if self.library is None:
            raise self.DynamicLibNotFoundError(name)
        return SimpleNamespace(abs_path=str(self.library))


@pytest.mark.usefixtures("_forget_toolkits")
def test_a_missing_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "_pathfinder", lambda: Finder({}))
    with pytest.raises(MissingPackageError, match=r"libnvrtc.*pip install .\.\[cuda13\]"):
        compile_kernel(KernelSource(GOOD, ("reverse",)), "sm_80")


WITHOUT_PATHFINDER = """
import sys
sys.modules["cuda.pathfinder"] = None
import gett
plan = gett.plan("ij,jk->ki", ((64, 64), "float16"), ((64, 64), "float16"), arch="sm_90a")
assert "wgmma" in plan.explain(detail=True)
from gett.codegen.records import KernelSource
from gett.jit import compile_kernel
from gett.tune.store import plan_key
from tests.cpu.tuning import FACTS
assert plan_key(plan.steps[0].gemm, FACTS) is None
try:
    compile_kernel(KernelSource("", ("k",)), "sm_80")
except gett.MissingPackageError as error:
    print(error)
"""


@pytest.mark.slow
def test_without_pathfinder_all_but_compiling_works() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PATHFINDER], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "needs the package cuda-pathfinder" in done.stdout
    assert INSTALL_GPU in done.stdout


@pytest.mark.usefixtures("_forget_toolkits")
@pytest.mark.parametrize("folder", ["lib", "lib64"])
def test_the_library_is_found_beside_its_header_and_not_loaded(
    folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / folder).mkdir()
    for name in ("libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc-builtins.so.13.0"):
        (tmp_path / folder / name).write_bytes(b"library")
    for name in ("beside", "runtime"):
        (tmp_path / name).mkdir()
    (tmp_path / "runtime" / "cuda_fp16.h").touch()
    finder = Finder({"nvrtc": str(tmp_path / "beside"), "cudart": str(tmp_path / "runtime")})
    monkeypatch.setattr(toolkit, "_pathfinder", lambda: finder)
    found = toolkit.find_toolkit()
    assert found.library == str(tmp_path / folder / "libnvrtc.so.13")
    assert found.builtins == tmp_path / folder / "libnvrtc-builtins.so.13.0"
    assert found.include == tmp_path / "runtime"
    assert finder.loaded == 0
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "cuda_fp16.h").touch()
    toolkit._find.cache_clear()
    assert toolkit.find_toolkit().include == tmp_path / "include"  # of the library's own version


@pytest.mark.usefixtures("_forget_toolkits")
def test_a_library_without_a_header_is_left_to_pathfinder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "libnvrtc.so.13").write_bytes(b"library")
    finder = Finder({"nvrtc": str(tmp_path / "usr" / "include")}, tmp_path / "libnvrtc.so.13")
    monkeypatch.setattr(toolkit, "_pathfinder", lambda: finder)
    assert toolkit.find_toolkit().library == str(tmp_path / "libnvrtc.so.13")
    assert finder.loaded == 1


def test_pathfinder_comes_with_whatever_compiles() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for extra in ("cuda12", "cuda13", "test"):
        assert any(r.startswith("cuda-pathfinder") for r in extras[extra]), extra
    for extra in ("cuda12", "cuda13", "bench"):
        assert any(r.startswith("tqdm") for r in extras[extra]), extra


def test_a_library_that_does_not_load_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GETT_NVRTC", str(tmp_path / "libnvrtc.so.13"))
    with pytest.raises(MissingPackageError, match="GETT_NVRTC names no file"):
        compile_uncached(GOOD, "sm_80")
    (tmp_path / "libnvrtc.so.13").write_bytes(b"no library")
    with pytest.raises(MissingPackageError, match=r"cannot be loaded.*pip install .\.\[cuda13\]"):
        compile_uncached(GOOD, "sm_80")


def test_missing_cuda_headers_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = toolkit.find_toolkit()
    bare = toolkit.Toolkit(found.library, found.builtins, None, "bare")
    monkeypatch.setattr(compile_module, "find_toolkit", lambda: bare)
    assert compile_uncached(GOOD, "sm_80").cubin
    with pytest.raises(MissingPackageError, match=r"cuda_fp16.h.*pip install .\.\[cuda13\]"):
        compile_uncached(HALF, "sm_80")


def test_the_newest_library_of_a_directory_is_taken(tmp_path: Path) -> None:
    for name in ("libnvrtc.so.9", "libnvrtc.so.13", "libnvrtc.so.12.4.1", "libnvrtc.alt.so.14", "libnvrtc.so.old"):
        (tmp_path / name).touch()
    assert toolkit._newest(tmp_path) == tmp_path / "libnvrtc.so.13"
    assert toolkit._newest(tmp_path / "none") is None


def test_fingerprints_tell_libraries_apart_and_places_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prints = []
    for folder, contents in (("a", b"one"), ("b", b"two"), ("c", b"one")):
        (tmp_path / folder).mkdir()
        library = tmp_path / folder / "libnvrtc.so.13"
        library.write_bytes(contents)
        monkeypatch.setenv("GETT_NVRTC", str(library))
        prints.append(toolkit.find_toolkit().fingerprint)
    assert prints[0] == prints[2] != prints[1]


def test_fingerprints_tell_headers_apart_by_their_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that was filled on another machine counts, where the same headers have other times."""
    prints = []
    for folder, contents in (("a", "one"), ("b", "two"), ("c", "one")):
        for part in ("lib", "include"):
            (tmp_path / folder / part).mkdir(parents=True)
        (tmp_path / folder / "lib" / "libnvrtc.so.13").write_bytes(b"library")
        header = tmp_path / folder / "include" / "cuda_fp16.h"
        header.write_text(contents)
        os.utime(header, (1000 + len(prints),) * 2)
        monkeypatch.setenv("GETT_NVRTC", str(tmp_path / folder / "lib" / "libnvrtc.so.13"))
        prints.append(toolkit.find_toolkit().fingerprint)
    assert prints[0] == prints[2] != prints[1]
