"""Contractions of common shapes: linear layers, attention, coupled cluster, tensor networks, square products.

Owns the tables of their extents. `benchmarks.schedule_times` times schedules of them, and the fastest are shipped with
the package (`gett.schedule.known`). Sizes are those of published models and of usual basis sets and bond dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

from benchmarks.cases import Case

HALVES, REALS, COMPLEX = ("bfloat16", "float16"), ("float64", "float32"), ("complex64", "complex128")
ALL = ("float16", "float32", "float32 tf32", "float64", "complex64", "complex128")

TOKENS = (1, 16, 512, 2048, 8192)
LAYERS = ((768, 3072), (1024, 4096), (4096, 1024), (4096, 4096), (4096, 14336), (14336, 4096), (8192, 8192))
"""Inputs and outputs of linear layers: GPT-2, BERT large, Llama 3 of 8 and of 70 billion parameters."""

HEADS = ((12, 64, 1024), (16, 64, 512), (32, 128, 2048), (32, 128, 4096))
"""Heads, their width, length of the sequence."""

ORBITALS = ((5, 20), (10, 50), (10, 100), (20, 60), (20, 100), (30, 120))
"""Occupied and virtual orbitals."""

COUPLED_CLUSTER = ("abef,ijef->ijab", "mnij,mnab->ijab", "mbej,imae->ijab", "mbje,imea->ijab", "ae,ijeb->ijab",
                   "mi,mjab->ijab", "Qae,Qbf->abef", "Qia,Qjb->iajb")  # fmt: skip
AUXILIARY = 4  # auxiliary functions of an orbital, for the label Q

BONDS = ((64, 2, 5), (128, 2, 5), (256, 2, 5), (512, 2, 5), (512, 4, 16), (1024, 2, 5))
"""Bond dimension of a matrix product state, of its sites, of the operator."""

SWEEP = ("lap,psr->lasr", "xal,lpr->xapr", "xapr,awps->xrws", "lax,lsr->axsr")
SIDES = (256, 512, 1024, 2048, 4096)
"""Of square matrices."""

BATCHED = ((1000, 16), (1000, 32), (256, 64), (128, 128), (64, 256))
"""Number and side of square matrices in a batch."""


def common_cases() -> Iterator[tuple[Case, str]]:
    """Each case with an element type, and the precision where it is not the default."""
    yield from _layers()
    yield from _attention()
    yield from _chemistry()
    yield from _networks()
    yield from _squares()


def _case(name: str, einsum: str, **extents: int) -> Case:
    return Case(f"{name}-{'x'.join(map(str, extents.values()))}", einsum, tuple(sorted(extents.items())), "common")


def _layers() -> Iterator[tuple[Case, str]]:
    for t, (i, o) in product(TOKENS, LAYERS):
        yield _case("linear", "ti,oi->to", t=t, i=i, o=o), "bfloat16"
        if t >= 512:
            yield _case("linear-in-out", "ti,io->to", t=t, i=i, o=o), "float16"
            yield _case("linear-weights", "ti,to->io", t=t, i=i, o=o), "bfloat16"
            yield _case("linear-tf32", "ti,oi->to", t=t, i=i, o=o), "float32 tf32"


def _attention() -> Iterator[tuple[Case, str]]:
    for (h, d, s), kind in product(HEADS, HALVES):
        extents = {"b": 4 if s < 2048 else 1, "q": s, "k": s, "h": h, "d": d}
        yield _case("scores", "bqhd,bkhd->bhqk", **extents), kind
        yield _case("values", "bhqk,bkhd->bqhd", **extents), kind


def _chemistry() -> Iterator[tuple[Case, str]]:
    for (o, v), einsum, kind in product(ORBITALS, COUPLED_CLUSTER, REALS):
        extents = {x: o if x in "ijklmn" else AUXILIARY * (o + v) if x == "Q" else v for x in einsum if x.isalpha()}
        elements = [math.prod(extents[x] for x in labels) for labels in einsum.replace("->", ",").split(",")]
        if sum(elements) < 1 << 29:
            yield _case(f"cc-{einsum}", einsum, **extents), kind


def _networks() -> Iterator[tuple[Case, str]]:
    for (x, s, w), einsum, kind in product(BONDS, SWEEP, (*COMPLEX, "float64")):
        extents = {c: s if c in "ps" else w if c in "aw" else x for c in einsum if c.isalpha()}
        yield _case(f"sweep-{einsum}", einsum, **extents), kind


def _squares() -> Iterator[tuple[Case, str]]:
    for n, einsum, kind in product(SIDES, ("mk,kn->mn", "mk,nk->mn", "km,kn->mn"), ALL):
        yield _case(f"square-{einsum}", einsum, m=n, n=n, k=n), kind
    for (b, n), kind in product(BATCHED, ALL):
        yield _case("batched", "bmk,bkn->bmn", b=b, m=n, n=n, k=n), kind
