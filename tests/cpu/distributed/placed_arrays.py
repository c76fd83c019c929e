"""NumPy's arrays that have a place, and a link between devices of one memory that is as strict as GPUs are."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

import gett
from gett.arrays.kinds import NumpyKind
from gett.slices.links import Link


def exact(case: str, rng: np.random.Generator, least: int = 2, most: int = 7, dtype: str = "float64") -> list[Any]:
    labels = sorted(set(case) - set(",->"))
    extents = {x: int(n) for x, n in zip(labels, rng.integers(least, most, len(labels)), strict=True)}
    return [rng.integers(-3, 4, [extents[x] for x in term]).astype(dtype) for term in case.split("->")[0].split(",")]


class Placed(np.ndarray):
    """An array with a device, which its views have too."""

    gpu = 0

    def __array_finalize__(self, other: Any) -> None:
        self.gpu = getattr(other, "gpu", State.current)


class State:
    """The current device, and what was moved."""

    current = 0
    moved: list[tuple[int, int, int]] = []  # noqa: RUF012


def gpu_of(array: Any) -> int:
    """The device of an array; what lost its own on the way to a plan was on the first."""
    return getattr(array, "gpu", 0)


class PlacedKind(NumpyKind):
    """NumPy's arrays, new ones on the current device."""

    def empty(self, shape: Any, dtype: Any, order: str = "C") -> Any:
        made = np.empty(shape, dtype, order).view(Placed)
        made.gpu = State.current
        return made

    def copy(self, target: Any, source: Any) -> None:
        assert gpu_of(target) == gpu_of(source) == State.current
        target[...] = source


KIND = PlacedKind()


class PlacedLink(Link):
    """Devices of one memory, as strict as GPUs without access to each other."""

    def kind_on(self, device: int) -> Any:
        return KIND

    def place(self, array: Any) -> int | None:
        return gpu_of(array)

    @contextlib.contextmanager
    def on(self, device: int) -> Any:  # type: ignore[override]
        before, State.current = State.current, device
        try:
            yield
        finally:
            State.current = before

    def fetch(self, array: Any, device: int, after: Any = None) -> tuple[Any, Any]:
        assert after in (None, ("copied", gpu_of(array)))
        State.moved.append((gpu_of(array), device, array.nbytes))
        copy = np.array(array, order="C").view(Placed)
        copy.gpu = device
        return copy, ("copied", device)

    def wait(self, device: int, event: Any) -> None:
        assert event == ("copied", device)

    def move(self, array: Any, device: int) -> Any:
        return array if gpu_of(array) == device else self.fetch(array, device)[0]


def on(array: Any, device: int) -> Any:
    found = array.view(Placed)
    found.gpu = device
    return found


def cut(array: Any, devices: list[int], axis: int) -> Any:
    """A sharded tensor whose parts have a place."""
    plain = gett.Sharded.cut(array, devices, axis)
    parts = [on(x.copy(), d) for x, d in zip(plain.parts, devices, strict=True)]
    made = gett.Sharded(parts, axis)
    made.parts = tuple(parts)
    return made


def in_form(form: str, arrays: list[Any], devices: list[int], axis: int) -> list[Any]:
    """Operands as arrays of the first device, cut along an axis, or in turns of both."""
    return [
        on(x.copy(), 0) if form == "arrays" or (form == "mixed" and i % 2) else cut(x, devices, axis % x.ndim)
        for i, x in enumerate(arrays)
    ]
