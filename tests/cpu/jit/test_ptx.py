"""What PTX shows: accumulators of wgmma that something touches while products write them."""

from __future__ import annotations

import pytest

from gett.errors import PoorKernelError
from gett.jit import compile as compile_module
from gett.jit import compile_uncached
from gett.jit.ptx import touched_in_flight

KERNEL = """
.visible .entry one(.param .u64 p)
{
	.reg .f32 %f<9>;
ENTRY
$L__BB0_1:
	// begin inline asm
	{
.reg .pred done;
again:
mbarrier.try_wait.parity.shared::cta.b64 done, [%r1], %r2;
@!done bra again;
}
	// end inline asm
HEAD
	wgmma.fence.sync.aligned;
	wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd1, %rd2, 1, 1, 1, 0, 0;
	wgmma.commit_group.sync.aligned;
INSIDE
	wgmma.wait_group.sync.aligned PENDING;
	add.s32 	%r3, %r3, 1;
BEHIND
	@%p1 bra 	$L__BB0_1;
	{
again:
mbarrier.try_wait.parity.shared::cta.b64 done, [%r4], %r2;
@!done bra again;
}
	wgmma.wait_group.sync.aligned 0;
	st.global.f32 	[%rd3], %f1;
	ret;
}
"""


def kernel(pending: int = 1, **at: str) -> str:
    text = KERNEL.replace("PENDING", str(pending))
    for place in ("ENTRY", "HEAD", "INSIDE", "BEHIND"):
        text = text.replace(place, f"\t{at.get(place.lower(), '// nothing')}")
    return text


MOVE = "mov.b32 \t%r7, %f3;"


def test_a_kernel_that_waits_touches_nothing() -> None:
    assert touched_in_flight(kernel()) == []
    assert touched_in_flight(kernel(entry="mov.f32 %f1, 0f00000000;")) == []
    assert touched_in_flight(kernel(inside="mov.b32 %r7, %f8;", behind="add.s32 %r8, %f30, %f31;")) == []


@pytest.mark.parametrize("place", ["inside", "behind", "head"])
def test_a_copy_beside_products_is_found(place: str) -> None:
    """At the head of the loop, too: products of the round before are under way there."""
    assert touched_in_flight(kernel(**{place: MOVE})) == [MOVE]
    assert touched_in_flight(kernel(**{place: "mov.b32 \t%f2, %r7;"})) == ["mov.b32 \t%f2, %r7;"]


def test_only_a_wait_for_all_ends_it() -> None:
    assert touched_in_flight(kernel(0, behind=MOVE)) == []
    assert touched_in_flight(kernel(0, head=MOVE)) == []
    assert touched_in_flight(kernel(0, inside=MOVE)) == [MOVE]
    assert touched_in_flight(kernel(10, behind=MOVE)) == [MOVE]


def test_ways_that_no_product_is_on_are_told_apart() -> None:
    behind = "bra.uni $L__BB0_3;\n$L__BB0_2:\n\tmov.b32 %r7, %f3;\n\tret;\n$L__BB0_3:"
    assert touched_in_flight(kernel(behind=behind)) == []
    assert touched_in_flight(kernel(inside="@%p2 bra $L__BB0_2;", behind=behind)) == ["mov.b32 %r7, %f3;"]
    assert touched_in_flight(kernel(inside="brx.idx %r1, table;", behind=behind)) == ["mov.b32 %r7, %f3;"]


def test_functions_are_told_apart() -> None:
    other = f".visible .entry two()\n{{\n\t{MOVE}\n\tret;\n}}\n"
    assert touched_in_flight(kernel() + other) == []
    assert touched_in_flight(other + kernel(inside=MOVE)) == [MOVE]
    assert touched_in_flight(other) == []


def test_such_a_kernel_is_compiled_again_and_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where a slow kernel would do."""
    defined: list[list[str]] = []

    def touched(ptx: str) -> list[str]:
        defined.append([word for word in ("fewer_blocks", "sparing") if word in ptx])
        return [MOVE]

    monkeypatch.setattr(compile_module, "touched_in_flight", touched)
    text = """
#include "gett/core/types.cuh"
extern "C" __global__ void __launch_bounds__(32 GETT_MIN_BLOCKS) made(int* p) {
#ifdef GETT_FEWER_BLOCKS
  p[1] = 1; asm volatile("// fewer_blocks");
#endif
#ifdef GETT_SPARING
  p[2] = 2; asm volatile("// sparing");
#endif
}
"""
    with pytest.raises(PoorKernelError, match=r"touches accumulators of wgmma while products write them: mov\.b32"):
        compile_uncached(text, "sm_90a", allow_spills=True)
    assert defined == [[], ["fewer_blocks"], ["fewer_blocks", "sparing"]]


OTHER = """wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f5, %f6, %f7, %f8}, %rd1, %rd2, 1, 1, 1, 0, 0;
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 1;"""


def test_groups_of_products_are_told_apart() -> None:
    """A wait for all groups but one: the older one's accumulators may be read, the newer one's may not."""
    older, newer = "add.f32 %f9, %f9, %f1;", "add.f32 %f9, %f9, %f5;"
    assert touched_in_flight(kernel(0, inside=f"{OTHER}\n\t{older}")) == []
    assert touched_in_flight(kernel(0, inside=f"{OTHER}\n\t{newer}")) == [newer]
    assert touched_in_flight(kernel(1, inside=OTHER, behind=newer)) == [newer]
    assert touched_in_flight(kernel(0, inside=OTHER, behind=newer)) == []
    # What is under way behind a turn of the loop is under way at the beginning of the next.
    assert touched_in_flight(kernel(1, inside=OTHER, head=newer)) == [newer]
