"""The kernel cache under several threads and processes."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gett.jit import diskcache
from gett.jit.diskcache import KernelCache
from gett.jit.entries import cache_key
from tests.cpu.jit.cache_files import KEY, LIMIT, PAYLOAD, entry_files, from_disk

pytestmark = pytest.mark.usefixtures("fresh_cache")


def test_threads_that_ask_at_once_build_once(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, LIMIT)
    start = threading.Barrier(8)
    builds: list[int] = []
    results: list[bytes] = []

    def build() -> bytes:
        builds.append(1)
        time.sleep(0.05)
        return PAYLOAD

    def ask() -> None:
        start.wait()
        results.append(cache.get_or_build(KEY, build))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(builds), results) == (1, [PAYLOAD] * 8)


def test_a_build_that_fails_is_tried_again(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, LIMIT)

    def fail() -> bytes:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.get_or_build(KEY, fail)
    assert cache.get_or_build(KEY, lambda: PAYLOAD) == PAYLOAD


WRITER = """
import sys, time
from pathlib import Path
from gett.jit.diskcache import KernelCache
from gett.jit.entries import cache_key
directory, go = Path(sys.argv[1]), Path(sys.argv[2])
print("ready", flush=True)
while not go.exists():
    time.sleep(0.0005)
for number in range(200):
    key = cache_key({"number": str(number % 5)})
    payload = bytes([number % 5]) * 20000
    cache = KernelCache(directory, 1 << 30)
    found = cache.get(key)
    assert found in (None, payload), number
    cache.put(key, payload)
"""


@pytest.mark.slow
def test_two_processes_that_write_the_same_keys_never_see_half_a_file(tmp_path: Path) -> None:
    directory, go = tmp_path / "cache", tmp_path / "go"
    command = [sys.executable, "-W", "error", "-c", WRITER, str(directory), str(go)]
    root = Path(diskcache.__file__).parents[2]
    processes = [subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    go.touch()
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert len(entry_files(directory)) == 5
    for number in range(5):
        assert from_disk(directory, cache_key({"number": str(number)})) == bytes([number]) * 20000
