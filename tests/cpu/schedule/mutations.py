"""Schedules with one field of one record changed to something else, from a seed; candidates that they start from."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

import gett
from gett import ops
from gett.hw.archs import ArchFacts, arch_facts
from gett.ir.gemm import GemmPlan, make_gemm_plan
from gett.schedule.search.select import candidates
from gett.schedule.spec.schedule import Schedule
from tests.cases import DENSE, Case
from tests.cpu.schedule import hopper_schedules as hopper
from tests.epilogues import with_epilogue
from tests.specs import FAMILIES, Spec, specs

NUMBERS = (0, 1, -1, 2, 3, 4, 5, 8, 16, 32, 64, 128, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 10**40)
WRONG = (None, "zz", "", 1.5, True, False, (), (1,), [], b"k", float("nan"))
SQUARE = Case("square", "ik,kj->ij", {"i": 96, "j": 80, "k": 512})
ROWS = Case("rows", "bik,bkj->ijb", {"i": 33, "j": 48, "k": 40, "b": 12})
TURNED = Case("turned", "ijk,ji->kij", {"i": 40, "j": 33, "k": 64})
FLAT = Case("flat", "ijk,ki->j", {"i": 40, "j": 33, "k": 64})
GATE = Case("gate", "jkl,ki->jil", {"i": 4, "j": 64, "k": 4, "l": 512})
ODD = Case("odd", "abcd,ead->dceb", {"a": 7, "b": 3, "c": 8, "d": 45, "e": 13})
PLANS = ((SQUARE, None), (ODD, None), (SQUARE, DENSE), (ROWS, None), (TURNED, None), (FLAT, DENSE), (GATE, None))
Base = tuple[Schedule, GemmPlan, ArchFacts]
Place = tuple[str | int, ...]


@cache
def few_bases() -> tuple[Base, ...]:
    """A schedule of each kind that is found quickly: parts of Hopper kernels, and the first candidates of a plan."""
    made = [make() for make in (hopper.plain, hopper.vectors, hopper.stationary, hopper.gathered, hopper.registers)]
    return (*made, *_candidates(("float32", "float32 bf16x6", "float32 tf32", "complex128")))


def _candidates(types: Sequence[str]) -> Iterator[Base]:
    """The first candidates of each kind of plans of several dtypes, and precisions; with C and without."""
    for kind, (case, c), arch in itertools.product(types, PLANS, ("sm_90a", "sm_80")):
        dtype, precision = f"{kind} ieee".split()[:2]
        plan, firsts = make_gemm_plan(case.contraction(dtype, precision=precision, with_c=c)), dict[Any, Schedule]()
        for s in candidates(plan, arch):
            loop = s.mainloop
            firsts.setdefault((loop.kind, *(type(getattr(loop, x, None)) for x in "ab"), s.split_k > 1), s)
        yield from ((s, plan, arch_facts(arch)) for s in firsts.values())


@cache
def bases() -> tuple[Base, ...]:
    """Schedules of every main loop and of every family of the catalogue; others by dtype, with C, functions, copies."""
    found: list[Base] = []
    for family in FAMILIES:
        every: dict[frozenset[str], Spec] = {}
        for spec in specs(family):
            every.setdefault(spec.parts, spec)
        found += [(s.schedule, s.plan, hopper.FACTS) for s in list(every.values())[::2][:6]]
    found += few_bases()
    found += _candidates(("float16", "float64", "complex64 bf16x6", "complex64 ieee", "int8", "int32", "bfloat16"))
    half = make_gemm_plan(SQUARE.contraction("float16"))
    function = with_epilogue(half, lambda d: ops.relu(d), ())
    found += [(s, function, hopper.FACTS) for s in candidates(function, "sm_90a")[:2]]
    for dtype in ("float16", "float32"):
        shape = ((1, 512, 512, 128), dtype)
        packed = gett.plan("bikc,bjkc->bijc", shape, shape, arch="sm_90a").steps[0].gemm
        found += [(s, packed, hopper.FACTS) for s in candidates(packed, "sm_90a")[:2]]
    return tuple(found)


def places(value: Any, hint: Any, at: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every field of a record, of records and tuples inside it, and its type."""
    if at:
        yield at, hint
    kinds = [h for h in (get_args(hint) if get_origin(hint) not in (tuple, None) else (hint,)) if h is not type(None)]
    if is_dataclass(value):
        hints = get_type_hints(type(value))
        for f in fields(value):
            if f.name != "forecast":
                yield from places(getattr(value, f.name), hints[f.name], (*at, f.name))
    elif isinstance(value, tuple):
        inner = next((get_args(h) for h in kinds if get_origin(h) is tuple), (Any, ...))
        few = range(len(value)) if len(value) < 8 else (0, len(value) // 2, len(value) - 1)
        for i, x in ((i, value[i]) for i in few):
            yield from places(x, inner[0] if inner[1:] == (Ellipsis,) else inner[i], (*at, i))


def at_place(value: Any, place: Place) -> Any:
    """What lies at a place of a record."""
    for step in place:
        value = value[step] if isinstance(step, int) else getattr(value, step)
    return value


def put(value: Any, place: Place, new: Any) -> Any:
    """A record with something else at a place.

    Raises:
        ValueError, TypeError: A record that checks itself refuses to be made.
    """
    if not place:
        return new
    step, *rest = place
    if isinstance(step, int):
        return (*value[:step], put(value[step], tuple(rest), new), *value[step + 1 :])
    return replace(value, **{step: put(getattr(value, step), tuple(rest), new)})


class Mutations:
    """Mutations of some schedules.

    Args:
        found: The schedules.
        seed: Of what is chosen.
    """

    def __init__(self, found: tuple[Base, ...], seed: int) -> None:
        self.rng = random.Random(seed)
        self.found = found
        self.places = [list(places(s, Schedule)) for s, _, _ in found]
        self.pool: dict[type, list[Any]] = {}
        for (s, _, _), every in zip(found, self.places, strict=True):
            for place, _ in every:
                value = at_place(s, place)
                if is_dataclass(value):
                    self.pool.setdefault(type(value), []).append(value)

    def next(self) -> tuple[Schedule, GemmPlan, ArchFacts, str]:
        """A schedule with one field changed, its plan and GPU, and what was changed."""
        while True:
            at = self.rng.randrange(len(self.found))
            s, plan, facts = self.found[at]
            place, hint = self.rng.choice(self.places[at])
            old = at_place(s, place)
            new = self.changed(old, hint)
            if new.__class__ is old.__class__ and new == old:
                continue
            try:
                return put(s, place, new), plan, facts, f"base {at}: {'.'.join(map(str, place))} = {new!r}"
            except (ValueError, TypeError, AttributeError):  # a record that checks itself
                continue

    def changed(self, old: Any, hint: Any) -> Any:
        """Something else in place of a value."""
        rng = self.rng
        if rng.random() < 0.03:
            return rng.choice(WRONG)
        if isinstance(old, bool):
            return not old
        if isinstance(old, int):
            near = (2 * old, old // 2, old + 1, old - 1, -old, old + 8, old * 4)
            return rng.choice(near if rng.random() < 0.6 else NUMBERS)
        if isinstance(old, str):
            words = ("k", "mn", "m", "n", "l", "a", "b", "scalar", "stsm", "stsm_t", "vec_n", "vec_m", "pair_n", "one")
            return rng.choice((*words, "sm_80", "sm_90a", "tf32", "bf16x6", "ieee"))
        if isinstance(old, tuple):
            return self.rearranged(old)
        kinds = get_args(hint) if get_origin(hint) is not None else (hint,)
        kind = rng.choice(kinds)
        if kind is type(None):
            return None
        return rng.choice(self.pool[kind]) if kind in self.pool else rng.choice(WRONG)

    def rearranged(self, old: tuple[Any, ...]) -> tuple[Any, ...]:
        """A tuple's items in another order, fewer, or more of them."""
        items, rng = list(old), self.rng
        ways = rng.randrange(5)
        if ways == 0 or not items:
            items.append(rng.choice(items) if items else rng.choice((0, 1, ("m", 0), ("k", 0), (0, 1), (0, 1, 2))))
        elif ways == 1:
            items.pop(rng.randrange(len(items)))
        elif ways == 2:
            rng.shuffle(items)
        elif ways == 3:
            items[rng.randrange(len(items))] = rng.choice(items)
        else:
            items = items * 2 if rng.random() < 0.5 else []
        return tuple(items)


def mangled(data: Any, rng: random.Random) -> Any:
    """JSON data with one value somewhere in it changed, gone, or twice."""
    if isinstance(data, dict) and data and rng.random() < 0.97:
        key = rng.choice(list(data))
        if rng.random() < 0.02:
            return {k: v for k, v in data.items() if k != key}
        return {**data, key: mangled(data[key], rng)}
    if isinstance(data, list) and data and rng.random() < 0.8:
        i = rng.randrange(len(data))
        return [*data[:i], *[mangled(data[i], rng)] * rng.choice((0, 1, 1, 1, 2)), *data[i + 1 :]]
    if data.__class__ is int and rng.random() < 0.7:
        return rng.choice((2 * data, data // 2, data + 1, -data, *NUMBERS))
    return rng.choice((None, True, "k", "mn", "zz", 1.5, [], [1, 2], {}, {"type": "Tma"}, *NUMBERS))
