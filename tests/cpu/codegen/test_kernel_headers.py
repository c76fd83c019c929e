"""The headers of the kernels: each compiles alone, folders include downward only, instructions stand in `ptx/`."""

from __future__ import annotations

import re

import pytest

from gett.jit.compile import compile_uncached, kernel_headers
from tests.sampling import slow_but

# From the bottom up: a header may include those of its own level and of levels before it. Chunks are `core`'s, and
# their loads and stores are instructions; a main loop knows its loader, and a loader the stages that it fills.
FOLDERS = (("core", "ptx", "contract"), ("scheduler",), ("epilogue",), ("loader", "mainloop"), ("kernel",))
LEVEL = {folder: level for level, folders in enumerate(FOLDERS) for folder in folders}
HEADERS = kernel_headers()


def included(text: str) -> list[str]:
    return re.findall(r'^#include "(.*)"$', text, re.M)


def test_headers_are_in_folders_by_part() -> None:
    assert {name.split("/")[1] for name in HEADERS} == set(LEVEL)
    assert all(re.fullmatch(r"gett/\w+/\w+\.cuh", name) for name in HEADERS)


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_has_20_to_300_lines_and_says_what_it_owns(name: str) -> None:
    text = HEADERS[name]
    assert 20 <= text.count("\n") <= 300
    assert max(map(len, text.splitlines())) <= 120
    assert re.match(r"// .*\n(//.*\n)*#pragma once\n", text)


@pytest.mark.parametrize("name", HEADERS)
def test_includes_go_downward(name: str) -> None:
    found = included(HEADERS[name])
    assert found == sorted(found)
    for other in found:
        assert other in HEADERS, other
        assert LEVEL[other.split("/")[1]] <= LEVEL[name.split("/")[1]], other


def test_no_header_includes_itself() -> None:
    def below(name: str, seen: tuple[str, ...]) -> None:
        assert name not in seen, (*seen, name)
        for other in included(HEADERS[name]):
            below(other, (*seen, name))

    for name in HEADERS:
        below(name, ())


@pytest.mark.parametrize("name", [name for name in HEADERS if not name.startswith("gett/ptx/")])
def test_instructions_stand_in_ptx(name: str) -> None:
    """An empty `asm` hides a value from the compiler and is no instruction."""
    assert not re.findall(r'asm(?: volatile)?\(\s*"[^"]', HEADERS[name])


@pytest.mark.parametrize("name", [name for name in HEADERS if name.startswith("gett/kernel/")])
def test_a_kernel_waits_for_the_one_ahead_of_it(name: str) -> None:
    """Launches from sm_90 on overlap, so each entry waits before it reads or writes."""
    entries = 2 if name == "gett/kernel/stream_sum.cuh" else 1  # `run` and `reduce`
    assert HEADERS[name].count("griddepcontrol_wait();") == entries


def test_alpha_and_beta_stand_in_one_header() -> None:
    """Every element of D goes through `LinearCombination`; concepts name them as members of `Params`."""
    having = [name for name, text in HEADERS.items() if re.search(r"\b(alpha|beta)\b", re.sub(r"//.*", "", text))]
    assert having == ["gett/contract/params.cuh", "gett/epilogue/linear_combination.cuh"]


@pytest.mark.parametrize("name", slow_but(HEADERS, [*HEADERS][::4]))
def test_a_header_compiles_alone(name: str) -> None:
    compile_uncached(f'#include "{name}"\nextern "C" __global__ void k() {{}}\n', "sm_90a")
