"""Named barriers: their numbers stand in one table, which says which kernels have them; elsewhere they have names."""

from __future__ import annotations

import re

import pytest

from gett.errors import CompileError
from gett.jit.compile import compile_uncached, kernel_headers

TABLE = "gett/core/named_barriers.cuh"
HEADERS = {name: re.sub(r"//.*", "", text) for name, text in kernel_headers().items()}
USES = re.findall(r"^  (k\w+) = (\d+), +// \S", kernel_headers()[TABLE], re.M)


def compiled(text: str, changed: str | None = None) -> None:
    headers = {**kernel_headers(), **({TABLE: changed} if changed else {})}
    kernel = f'#include "gett/ptx/warpgroup.cuh"\nextern "C" __global__ void k() {{ {text} }}\n'
    compile_uncached(kernel, "sm_90a", headers=headers)


def test_every_use_says_who_waits_and_is_in_the_check_and_in_a_header() -> None:
    names = [name for name, _ in USES]
    text = HEADERS[TABLE]
    body = text[text.index("enum class NamedBarrier") : text.index("};")]
    assert names == re.findall(r"\bk\w+", body)
    for name in names:
        assert f"{{NamedBarrier::{name}, " in text, name
        users = [header for header, code in HEADERS.items() if header != TABLE and f"NamedBarrier::{name}" in code]
        assert users or name == "kBlock", name  # which is __syncthreads


def test_headers_name_their_barriers() -> None:
    calls = 0
    for header, code in HEADERS.items():
        assert not re.search(r"k\w*Barrier = \d", code), header
        if header == "gett/ptx/warpgroup.cuh":
            continue
        assert "NamedBarrier(" not in code or header == TABLE, header
        for argument in re.findall(r"\bnamed_barrier_(?:sync|or|arrive)\(([^,]*),", code):
            assert re.match(r"NamedBarrier::k\w+( \+ |$)|barrier_$", argument), (header, argument)
            calls += 1
    assert calls >= 12


def test_instructions_on_barriers_stand_in_one_header() -> None:
    having = [name for name, code in HEADERS.items() if re.search(r'"[^"]*\b(bar\.|barrier\.cta)', code)]
    assert having == ["gett/ptx/warpgroup.cuh"]


def test_a_number_is_no_barrier() -> None:
    compiled("gett::named_barrier_sync(gett::NamedBarrier::kTile + 1, 128);")
    with pytest.raises(CompileError, match="NamedBarrier"):
        compiled("gett::named_barrier_sync(1, 128);")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("kVote = 3,", "kVote = 2,"),  # the second of kTile
        ("kTake = 5,", "kTake = 4,"),
        ("kZeroed = 6,", "kZeroed = 5,"),  # the second of kOrder
        ("kStaged = 12,", "kStaged = 15,"),  # the second is no barrier
    ],
)
def test_numbers_that_meet_do_not_compile(before: str, after: str) -> None:
    text = kernel_headers()[TABLE]
    assert before in text
    with pytest.raises(CompileError, match="two uses of a kernel have one named barrier"):
        compiled("", text.replace(before, after))
