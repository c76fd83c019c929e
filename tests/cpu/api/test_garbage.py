"""Public functions called with whatever comes: only errors of this package, and Python's own for a wrong call."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import gett

CALLS = 20_000
# What Python says of arguments that a function does not have or lacks.
WRONG_CALL = re.compile(r"(missing|unexpected keyword|positional argument|multiple values|takes )")


class Hostile:
    """An object whose conversion fails in its own way."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise self.error("no array here")


class Exporting:
    """An object with DLPack that exports nothing."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("nothing to export")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class Stubborn(np.ndarray):
    """An array that takes part in no ufunc."""

    __array_ufunc__ = None


class Garbage:
    """Arguments from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def shape(self) -> tuple[int, ...]:
        return tuple(
            self.rng.choice([0, 1, 1, 2, 3, 3, 3, 4]) for _ in range(self.rng.choice([0, 1, 1, 2, 2, 2, 3, 4]))
        )

    def dtype(self) -> str:
        usual = ["f8", "f8", "f4", "c16", "c8", "i8", "i1", "u4", "?", "f2"]
        return self.rng.choice(usual if self.chance(0.94) else ["g", "G", "O", ">f8", ">i2", "U3", "S2", "M8[s]", "V4"])

    def array(self, shape: tuple[int, ...] | None = None) -> Any:
        shape, dtype = self.shape() if shape is None else shape, self.dtype()
        found = np.asarray(self.numbers.integers(0, 3, shape))
        found = np.zeros(shape, dtype) if dtype in ("V4", "M8[s]") else found.astype(dtype)
        way = self.rng.randrange(14)
        if way == 0:
            return found.T
        if way == 1 and found.ndim:
            return found[::-1]
        if way == 2 and found.ndim:
            return found[..., ::2]
        if way == 3:
            return np.broadcast_to(found[..., :1], (*found.shape[:-1], 3)) if found.size and found.ndim else found
        if way == 4:
            found.flags.writeable = False
        if way == 5:
            return found.view(Stubborn)
        if way == 6:
            return np.ma.masked_array(found)
        if way == 7 and found.size and found.ndim:
            return as_strided(found, found.shape, [self.rng.choice([0, found.itemsize]) for _ in found.shape])
        if way == 8 and found.dtype.kind not in "V":
            return found.tolist()
        if way == 9 and found.ndim == 0:
            return found[()]
        return found

    def thing(self) -> Any:
        made: list[Callable[[], Any]] = [
            lambda: None,
            lambda: self.rng.choice([0, 1, -1, 2, True, False, 3.5, 1j, np.nan, np.inf, 10**30, -(10**400), 2**63]),
            lambda: self.rng.choice(["", "ij", "i,i->", "x" * 70, b"ij,jk", "\ud800", "\0", "ïj", "...", "autotune"]),
            lambda: self.rng.choice([[], [[1, 2], [3]], [None], [[]], (1, 2), {"a": 1}, {1, 2}, [[1], "a"], range(3)]),
            lambda: self.rng.choice(
                [object(), len, Garbage, Ellipsis, NotImplemented, iter([1]), slice(3), Fraction(1)]
            ),
            lambda: self.rng.choice(
                [np.float32(2), np.int8(-1), np.longdouble(2), np.str_("a"), np.datetime64("2020")]
            ),
            lambda: self.rng.choice([np.dtype("f8"), float, "f4", "bfloat16", np.dtype("i4,f4"), "zz", np.float64]),
            lambda: Hostile(self.rng.choice([ValueError, TypeError, RuntimeError, KeyError, MemoryError])),
            lambda: Exporting(),
            lambda: (self.shape(), self.dtype()),
            lambda: ((self.rng.choice([-1, 2.5, "a", None, 1]),), self.rng.choice(["f8", "zz", None, 3])),
            lambda: np.zeros((1,) * self.rng.choice([33, 64])),
            lambda: np.array([self.array(), None, "x", 1], dtype=object)[: self.rng.randrange(5)],
        ]
        return self.rng.choice(made)()

    def operand(self) -> Any:
        return self.array() if self.chance(0.85) else self.thing()

    def fitting(self) -> tuple[Any, ...]:
        """Subscripts and operands that mostly belong together."""
        extents = {x: self.rng.choice([0, 1, 2, 2, 3, 3, 4]) for x in "ijkl"}
        terms = [
            "".join(self.rng.choices("ijkl", k=self.rng.randrange(4))) for _ in range(self.rng.choice([1, 2, 2, 3]))
        ]
        labels = sorted(set("".join(terms)))
        output = "".join(self.rng.sample(labels, self.rng.randrange(len(labels) + 1)))
        text = ",".join(terms) + ("->" + output if self.chance(0.7) else "")
        arrays = [self.array(tuple(extents[x] for x in t)) if self.chance(0.95) else self.operand() for t in terms]
        if self.chance(0.2):
            return tuple(x for pair in zip(arrays, map(list, terms), strict=True) for x in pair)
        return (text, *arrays)

    def subscripts(self) -> Any:
        if self.chance(0.7):
            return "".join(self.rng.choices("ijkIé\u4e00,,->..1 \0", k=self.rng.randrange(9)))
        return self.thing()

    def arguments(self) -> tuple[Any, ...]:
        if self.chance(0.75):
            return self.fitting()
        return tuple([self.subscripts()] if self.chance(0.95) else []) + tuple(
            self.operand() for _ in range(self.rng.randrange(4))
        )

    def options(self, *names: str) -> dict[str, Any]:
        good: dict[str, list[Any]] = {
            "dtype": ["f8", "c16", "O", "g", "bfloat16", np.float32, None],
            "order": ["C", "F", "A", "K", None, "k"],
            "casting": ["no", "safe", "same_kind", "unsafe"],
            "optimize": [
                True,
                False,
                "greedy",
                ("greedy", 9),
                ("greedy", np.inf),
                [(0, 1)],
                [(0, 1), (0, 1)],
                [(0, 5)],
                1,
            ],
            "precision": [None, "ieee", "tf32"],
            "arch": [None, "cpu", "sm90", "sm_90", 90],
            "alpha": [1, 2, -1, 0.5, 1j, 300, 10**400, np.nan, Fraction(1, 2), np.longdouble(2)],
            "beta": [None, 0, 1, -1, 0.5, 1j, 10**400],
            "candidates": [1, 2, 0, True],
            "repeat": [1, 0],
            "progress": [False, None],
        }
        chosen: dict[str, Any] = {}
        for name in names:
            if self.chance(0.12):
                chosen[name] = self.rng.choice(good[name]) if name in good and self.chance(0.8) else self.operand()
        if self.chance(0.01):
            chosen["nonsense"] = 1
        return chosen


def _call(garbage: Garbage) -> None:
    """One call of one public function."""
    shared = ("out", "dtype", "order", "casting", "optimize", "precision")
    which = garbage.rng.randrange(8)
    if which in (0, 1):
        gett.einsum(*garbage.arguments(), **garbage.options(*shared))
    elif which == 2:
        gett.contract(*garbage.arguments(), **garbage.options("c", "alpha", "beta", "out", "optimize", "precision"))
    elif which in (3, 4):
        arguments = garbage.arguments()
        made = gett.plan(*arguments, **garbage.options("c", "arch", *shared))
        call = garbage.options("c", "alpha", "beta", "out")
        operands = arguments[1:] if arguments and isinstance(arguments[0], str) else arguments[::2]
        made(*(operands if garbage.chance(0.9) else garbage.arguments()), **call)
    elif which == 5:
        a = garbage.operand()
        axes = garbage.rng.choice([0, 1, 2, (1, 0), ([0], [0]), (0,), "01", garbage.operand()])
        gett.tensordot(a, garbage.operand(), axes) if garbage.chance(0.5) else gett.tensordot(a, a, axes=axes)
    elif which == 6:
        gett.transpose(garbage.operand(), garbage.rng.choice([None, 1, 0, (1, 0), (0, 2, 1), garbage.operand()]))
    elif garbage.chance(0.5):
        gett.autotune(*garbage.arguments(), **garbage.options("candidates", "repeat", "progress", *shared))
    else:
        gett.plan_cache.resize(garbage.operand() if garbage.chance(0.9) else garbage.rng.randrange(2000))


def _is_objects(error: BaseException) -> bool:
    """Whether an error is that of the objects in an array of dtype object, which NumPy's einsum lets through."""
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename.endswith("numpy_route.py"):
            return True
        frame = frame.tb_next
    return False


@pytest.mark.slow
@pytest.mark.parametrize("first", range(4))
def test_garbage_gives_typed_errors(first: int) -> None:
    """A quarter of the calls in each test."""
    outcomes = {"fine": 0, "typed": 0, "wrong call": 0, "objects": 0}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            for seed in range(first, CALLS, 4):
                try:
                    _call(Garbage(seed))
                except gett.GettError:
                    outcomes["typed"] += 1
                except TypeError as error:
                    if not WRONG_CALL.search(str(error)) and not _is_objects(error):
                        pytest.fail(f"call {seed}: {error!r}")
                    outcomes["wrong call"] += 1
                except Exception as error:
                    if not _is_objects(error):
                        pytest.fail(f"call {seed}: {error!r}")
                    outcomes["objects"] += 1
                else:
                    outcomes["fine"] += 1
        finally:
            gett.plan_cache.clear()
            gett.plan_cache.resize(1024)
    assert outcomes["fine"] > CALLS // 20
    assert outcomes["typed"] > CALLS // 20
    assert outcomes["wrong call"] + outcomes["objects"] < CALLS // 80
