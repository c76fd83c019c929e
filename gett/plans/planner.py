"""From a request to a `ContractionPlan`: parse, find the path, plan each step, choose its executor.

Owns the sequence of the passes; each pass lives in its own module. Knows no user arrays, only their descriptions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gett.console.formatting import count, format_seconds
from gett.errors import EpilogueError
from gett.hw.archs import ArchFacts
from gett.hw.dtypes import data_type, is_complex
from gett.ir.build import address, address_c, address_extra, choose_order, make_contraction, resolve_extents
from gett.ir.contraction import Contraction, Operand
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.ir.pairs import one_is_real
from gett.ir.subscripts import Subscripts, parse
from gett.ir.tensors import (
    ALIGNMENT_LIMIT,
    SUPPORTED,
    TensorSpec,
    converted,
    dense_strides,
    factor_dtype,
    promote,
    resolve_precision,
    short_dtype,
    sum_dtype,
)
from gett.network.cutting import Section, cut_free, cut_sum, partial_sums, uncut
from gett.network.forms import fastest_form
from gett.network.optimize import AUTOTUNE, check_optimize, in_elements
from gett.network.pairs import Rates
from gett.network.path import Path, SumFirst, find_steps
from gett.network.request import PlanRequest
from gett.network.steps import PathStep, Step
from gett.network.together import LEAST
from gett.plans.contraction_plan import ContractionPlan
from gett.plans.executables import choose_schedules, limited_facts, with_launches
from gett.plans.standing_in import PAUSE_S, bind_first, hush

_log = logging.getLogger("gett")


def resolve(request: PlanRequest) -> tuple[Subscripts, tuple[int, ...], np.dtype[Any]]:
    """What a request comes to before anything is planned: modes, their extents, and the dtype to compute in.

    Raises:
        SubscriptsError, ShapeError, DTypeError, OutputError: The request is at fault.
    """
    subscripts = parse(request.spec, [len(t.shape) for t in request.operands])
    out_shape = None if request.out is None else request.out.shape
    extents = resolve_extents(subscripts, [t.shape for t in request.operands], out_shape)
    named = [] if request.c is None else [("c", request.c)]
    return subscripts, extents, promote(request.operands, named, request.out, request.dtype, request.casting)


def make_plan(request: PlanRequest, replan: Callable[..., ContractionPlan]) -> ContractionPlan:
    """Plan a contraction without slices from descriptions alone.

    Args:
        request: What is asked for; a limit of memory does not count.
        replan: Finds the plan of another request.

    Raises:
        SubscriptsError, ShapeError, DTypeError, OutputError, PrecisionError, OptionError: The request is at fault.
        ScheduleError, CompileError: No kernel can be made for it.
    """
    start = time.perf_counter()
    if len(request.operands) > LEAST and request.arch != "cpu":
        hush(PAUSE_S)
    subscripts, extents, dtype = resolve(request)
    precision = _precision(request, dtype)
    order = choose_order(request.order, request.operands)
    check_optimize(request.optimize, len(request.operands))

    d = _describe_result(request, subscripts, extents, dtype, order)
    d_operand = address(subscripts.output, d, extents)
    c_operand = None if request.c is None else address_c(subscripts.output, _as_read(request.c, d.dtype), extents)
    extras = _address_extras(request, subscripts, extents, dtype)
    short = None if request.arch == "cpu" else short_dtype(request.operands, dtype, precision)
    factors = _Factors(request, subscripts, extents, dtype, short)
    sources = [factors.read(i, x) for i, x in enumerate(factors.dtypes)]
    # An epilogue sees sums as they are in the accumulator's type, others the result's bits, which are the same.
    wide = np.dtype(data_type(dtype.name).accumulator) if request.epilogue is not None else sum_dtype(dtype)
    found: Path = (tuple(range(len(sources))),)
    steps: tuple[Step, ...] = ()
    standing = None
    facts = None if request.arch == "cpu" else limited_facts(request.arch, request.workspace_limit)
    if 0 not in d.shape:
        varying = drop_constant(sources)
        if 0 in extents and len(sources) > 2:
            path: tuple[PathStep, ...] = (_empty_sum(sources, subscripts.output, extents),)
        else:
            memory = [sorted(o.modes, key=lambda m, o=o: -abs(o.stride(m))) for o in varying]  # type: ignore[misc]
            terms = [o.modes for o in varying]
            sums = _when_to_sum(short is not None or wide != dtype, request.arch)
            optimize = in_elements(request.optimize, dtype.itemsize)
            rates = _rates(facts, dtype, precision) if facts is not None and len(varying) > 2 else None
            path, found = find_steps(terms, subscripts.output, extents, memory, optimize, sums, rates=rates)
        build = partial(make_contraction, subscripts.names, extents, precision=precision)
        build_last = partial(build, d=d_operand, c=c_operand, epilogue=request.epilogue, extras=extras)
        intermediate = partial(_intermediate, extents=extents, alignment=_new_alignment(request))
        tensors = varying if len(path) > 1 else sources
        whole = _contractions(path, tensors, (dtype, wide, short), factors, facts, intermediate, build, build_last)
        steps = _make_steps(whole, len(sources), request.arch, wide)
        took = format_seconds(time.perf_counter() - start)
        _log.info("planned %s for %s in %s, %s", subscripts, request.arch, count(len(steps), "step"), took)
        if request.arch != "cpu" and _may_be_together(request, factors.dtypes):
            steps = with_launches(steps, request.arch)
        if request.device is not None:
            steps, standing = bind_first(steps, request)
        elif request.arch != "cpu":
            steps = choose_schedules(steps, request.arch, request.workspace_limit)
    plan = ContractionPlan(request, str(subscripts), steps, found, d, order, factors.dtypes, replan)
    if standing is not None and request.device is not None:
        plan.stand_in(standing, request.device)
    return plan


def _may_be_together(request: PlanRequest, read: Sequence[np.dtype[Any]]) -> bool:
    """Whether all steps are launches on what the call is given: nothing is measured, and no operand converted."""
    return request.optimize != AUTOTUNE and all(t.dtype == x for t, x in zip(request.operands, read, strict=True))


def _precision(request: PlanRequest, dtype: np.dtype[Any]) -> str:
    """How products of a dtype are formed: on the CPU as BLAS multiplies, which is as accurate as any name asks for."""
    asked = resolve_precision(request.precision, dtype)
    return "ieee" if request.arch == "cpu" else asked


class _Factors:
    """The operands as contractions read them: each in its own dtype or converted.

    Attributes:
        dtypes: In which each is read.
        complex: Whether alpha or beta is complex.
    """

    def __init__(
        self,
        request: PlanRequest,
        subscripts: Subscripts,
        extents: tuple[int, ...],
        dtype: np.dtype[Any],
        short: np.dtype[Any] | None,
    ) -> None:
        self._request, self._inputs, self._extents = request, subscripts.inputs, extents
        self.complex = request.complex_factors
        self.dtypes = [short or factor_dtype(t.dtype, dtype) for t in request.operands]

    def read(self, i: int, dtype: np.dtype[Any]) -> Operand:
        """How an operand is addressed in a dtype."""
        given, flags = self._request.operands[i], self._request.conj
        conj = given.conj if flags is None else flags[i] != given.conj
        return address(self._inputs[i], _as_read(given, dtype), self._extents, conj)

    def precision(self, dtype: np.dtype[Any]) -> str:
        """At which products of a dtype are formed: float32 of intermediates has its own where none is asked for."""
        return _precision(self._request, dtype)

    def widened(self, i: int, operand: Operand, dtype: np.dtype[Any]) -> Operand:
        """What a step reads, in a wider dtype from now on where it is an operand; intermediates are as they are."""
        if i >= len(self.dtypes):
            return operand
        self.dtypes[i] = dtype
        return self._read_as(i, operand, dtype)

    def _read_as(self, i: int, operand: Operand, dtype: np.dtype[Any]) -> Operand:
        """An operand in a dtype, with the modes that a path reads of it."""
        whole = self.read(i, dtype)
        return replace(whole, modes=operand.modes, strides=tuple(map(whole.stride, operand.modes)))

    def fastest(
        self,
        inputs: Sequence[int],
        plain: Contraction,
        sides: dict[str, Any],
        make: Callable[..., Contraction],
        facts: ArchFacts,
        *,
        pairs: bool,
    ) -> Contraction:
        """The fastest form of a product of a real and a complex operand; the real one may be converted for it."""
        dtype = sides["dtype"]
        name, i = next((n, i) for n, i in zip("ab", inputs, strict=True) if not is_complex(sides[n].dtype))
        copied = make(**sides | {name: self._read_as(i, sides[name], dtype)}) if i < len(self.dtypes) else None
        found = fastest_form(plain, copied, facts, pairs=pairs)
        if found is copied:
            self.dtypes[i] = dtype
        return found


def _address_extras(
    request: PlanRequest, subscripts: Subscripts, extents: tuple[int, ...], dtype: np.dtype[Any]
) -> tuple[Operand, ...]:
    """How the tensors that the epilogue reads are addressed.

    Raises:
        EpilogueError: One does not broadcast to the result's shape or has a dtype that may not stand beside it, or an
            operation is not defined for the result's dtype.
    """
    if request.epilogue is None:
        return ()
    from gett.epilogue.expression import Extra
    from gett.epilogue.types import value_types

    for i, spec in enumerate(request.epilogue_args):
        if spec.dtype.name not in SUPPORTED:
            known = ", ".join(sorted(SUPPORTED))
            raise EpilogueError(f"epilogue_args[{i}] has dtype {spec.dtype}; supported are {known}")
    extras = request.epilogue.extras
    for i, spec in enumerate(request.epilogue_args):
        if all(x.argument != i for x in extras):  # one that is not read is no less likely to be a mistake
            address_extra(subscripts.output, spec, Extra(i, tuple(range(len(spec.shape)))), extents)
    specs = [request.epilogue_args[x.argument] for x in extras]
    value_types(request.epilogue, data_type(dtype.name).accumulator, [s.dtype.name for s in specs])
    return tuple(address_extra(subscripts.output, s, x, extents) for x, s in zip(extras, specs, strict=True))


def _describe_result(
    request: PlanRequest, subscripts: Subscripts, extents: tuple[int, ...], dtype: np.dtype[Any], order: str
) -> TensorSpec:
    """What the last step writes: `out` in its own strides, or a new array where there is none of this dtype."""
    if request.out is not None and (request.sums or request.out.dtype == dtype):
        return request.out
    shape = tuple(extents[m] for m in subscripts.output)
    return TensorSpec(shape, dense_strides(shape, dtype.itemsize, order), dtype, _new_alignment(request))


def _new_alignment(request: PlanRequest) -> int:
    return 1 if request.arch == "cpu" else ALIGNMENT_LIMIT


def _as_read(tensor: TensorSpec, dtype: np.dtype[Any]) -> TensorSpec:
    return tensor if tensor.dtype == dtype else converted(tensor, dtype)


def _empty_sum(sources: list[Operand], output: tuple[int, ...], extents: tuple[int, ...]) -> PathStep:
    """The one step of a network that sums over nothing: the sum over an operand without elements is the same zero."""
    first = next(i for i, o in enumerate(sources) if any(extents[m] == 0 for m in o.modes))
    return PathStep((first,), len(sources), output)


def drop_constant(operands: list[Operand]) -> list[Operand]:
    """Operands without the modes of stride 0: along them a path need not see them.

    A mode along which no operand varies stays with the first that has it: it still counts in sums and in the result.
    """
    held = {m for o in operands for m, s in zip(o.modes, o.strides, strict=True) if s}
    result = []
    for o in operands:
        kept = [(m, s) for m, s in zip(o.modes, o.strides, strict=True) if s or m not in held]
        held.update(m for m, _ in kept)
        result.append(replace(o, modes=tuple(m for m, _ in kept), strides=tuple(s for _, s in kept)))
    return result


def _when_to_sum(short: bool, arch: str) -> SumFirst:
    """A step more costs a launch and a pass over memory; 16-bit products on tensor cores cost next to nothing."""
    if arch == "cpu":
        return SumFirst(1.5, 1 << 14, short)
    return SumFirst(16, 1 << 26, short) if short else SumFirst(2, 1 << 24, short)


def _rates(facts: ArchFacts, dtype: np.dtype[Any], precision: str) -> Rates:
    """How long a network's steps take on a GPU, whose arithmetic is that of tensor cores where they multiply."""
    from gett.explain.roofline import peak_tflops  # late, as the models of devices: plans of NumPy need neither
    from gett.hw.device import nearest

    products_per_us = peak_tflops(facts, dtype.name, precision) * 1e6 / (2 * data_type(dtype.name).real_products)
    return Rates(facts.dram_tbps * 1e6, products_per_us, nearest(facts).launches.launch_us, dtype.itemsize)


def _contractions(
    path: tuple[PathStep, ...],
    sources: list[Operand],
    dtypes: tuple[np.dtype[Any], np.dtype[Any], np.dtype[Any] | None],
    factors: _Factors,
    facts: ArchFacts | None,
    intermediate: Callable[..., Operand],
    build: Callable[..., Contraction],
    build_last: Callable[..., Contraction],
) -> list[tuple[PathStep, Contraction]]:
    """The contraction of each step; intermediates are dense in the mode order that the path gives them.

    A step computes in the plan's dtype, or in the wider one that sums are kept in once an operand has that; in the
    short one while all operands have that. Steps of real operands before a complex result compute in real numbers; of
    a real and a complex one in the fastest form, where `facts` tell. The last step alone has C and the epilogue.
    """
    dtype, wide, short = dtypes
    tensors = dict(enumerate(sources))
    result = []
    for step in path:
        operands = [tensors[i] for i in step.inputs]
        kinds = {o.dtype for o in operands}
        compute = kept = dtype
        options: dict[str, Any] = {}
        if short is not None and kinds == {short.name}:
            compute, options["precision"] = short, "ieee"
        elif short is not None:
            operands = [factors.widened(i, x, dtype) for i, x in zip(step.inputs, operands, strict=True)]
        elif dtype.kind != "c":
            compute = dtype if kinds == {dtype.name} else wide
            options["precision"] = factors.precision(compute)
        elif dtype.name not in kinds and step is not path[-1]:
            compute = kept = factor_dtype(np.dtype(float), dtype)
        sides = {"a": operands[0], "b": operands[1] if len(operands) == 2 else None, "dtype": compute}
        if step is path[-1]:
            make = partial(build_last, **options)
        else:
            target = tensors[step.output] = intermediate(step.modes, wide if step.wide else kept)
            make = partial(build, d=target, c=None, **options)
        made = make(**sides)
        if facts is not None and one_is_real(made):
            pairs = step is not path[-1] or not factors.complex
            made = factors.fastest(step.inputs, made, sides, make, facts, pairs=pairs)
        result.append((step, made))
    return result


def _intermediate(modes: tuple[int, ...], dtype: np.dtype[Any], extents: tuple[int, ...], alignment: int) -> Operand:
    strides = dense_strides([extents[m] for m in modes], dtype.itemsize)
    return Operand(modes, strides, dtype.name, alignment)


def _make_steps(
    whole: Sequence[tuple[PathStep, Contraction]], operands: int, arch: str, wide: np.dtype[Any]
) -> tuple[Step, ...]:
    """Steps without schedules and executables; on GPUs, a contraction too large for one launch makes several.

    Large networks have many contractions that differ in letters alone, which are planned once.
    """
    steps: list[Step] = []
    fresh = operands + len(whole)
    gemms: dict[Contraction, GemmPlan] = {}

    def add(inputs: tuple[int, ...], output: int, shape: tuple[int, ...], sections: Iterable[Section]) -> None:
        for section in sections:
            contraction = section.contraction
            same = gemms.get(kind := contraction.nameless)
            if same is None:
                same = gemms[kind] = make_gemm_plan(contraction)
            gemm = same.of(contraction)
            steps.append(Step(str(contraction), inputs, output, shape, gemm, offsets=section.offsets))

    for step, contraction in whole:
        inputs, shape, sections = step.inputs, contraction.shape_d, [uncut(contraction)]
        if arch != "cpu":
            sections = cut_sum(contraction)
            if len(sections) > 1:
                kept = wide.name if is_complex(contraction.dtype) == is_complex(wide.name) else contraction.dtype
                partial_results, total = partial_sums(sections, kept)
                for section in partial_results:
                    add(inputs, fresh, (len(sections), *shape), cut_free(section))
                inputs, sections = (fresh,), [uncut(total)]
                fresh += 1
            sections = list(cut_free(sections[0]))
        add(inputs, step.output, shape, sections)
    return tuple(steps)
