"""The ways in which a product of a real and a complex operand runs on a GPU, and which of them is fastest.

A kernel may read both operands as they are. The product may be one of real numbers, along one more mode
(`gett.ir.pairs`). Or the real operand is converted to a complex copy first, as one would by hand. Owns the choice, by
the cost model's estimates.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gett.errors import ScheduleError
from gett.hw.archs import ArchFacts
from gett.hw.dtypes import is_complex
from gett.ir.build import make_contraction
from gett.ir.contraction import Contraction
from gett.ir.gemm import make_gemm_plan
from gett.ir.packing import packed_bytes
from gett.ir.pairs import real_pairs


def fastest_form(plain: Contraction, widened: Contraction | None, facts: ArchFacts, *, pairs: bool) -> Contraction:
    """The contraction in the form that the model expects to be fastest.

    Args:
        plain: A product of a real and a complex operand.
        widened: The same with a complex copy of the real one; None where there may be none.
        facts: Of the architecture; the copy takes no more than its workspace may.
        pairs: Whether its factors are real, as products in pairs need them.
    """
    from gett.schedule.search.stream import is_stream

    if is_stream(make_gemm_plan(plain)):
        return plain  # its time is that of its bytes, which are fewest as they are
    forms = {plain: _expected_us(plain, facts)}
    real = real_pairs(plain) if pairs and not any(plain.conj) else None
    if real is not None:
        forms[real] = _expected_us(real, facts)
    copying = None if widened is None else _conversion(plain, widened)
    if widened is not None and copying is not None and packed_bytes(copying, copying.d) <= facts.workspace_limit:
        forms[widened] = _expected_us(widened, facts) + _expected_us(copying, facts)
    return min(forms, key=lambda form: forms[form])


def _expected_us(contraction: Contraction, facts: ArchFacts) -> float:
    """The estimate of the schedule that would be chosen, infinity where there is none."""
    from gett.schedule.search.select import select_schedule

    try:
        return select_schedule(make_gemm_plan(contraction), facts.arch, facts).forecast.us
    except ScheduleError:
        return math.inf


def _conversion(plain: Contraction, widened: Contraction) -> Contraction:
    """What makes the complex copy of the real operand; modes of stride 0 are not copied."""
    assert plain.b is not None
    assert widened.b is not None
    real, copy = (plain.b, widened.b) if is_complex(plain.a.dtype) else (plain.a, widened.a)
    strides = zip(real.modes, real.strides, copy.strides, strict=True)
    modes, read, written = zip(*((m, s, t) for m, s, t in strides if s), strict=True)
    source, target = replace(real, modes=modes, strides=read), replace(copy, modes=modes, strides=written)
    dtype = np.dtype(plain.dtype)
    return make_contraction(plain.names, plain.extents, source, None, target, None, dtype, plain.precision)
