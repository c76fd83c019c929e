"""`Sharded`: a tensor that is cut along an axis, whose parts lie on several devices.

Owns where parts begin, and boxes of the whole tensor as pieces of parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gett.arrays.interop import gather
from gett.arrays.kinds import NUMPY, ArrayKind
from gett.arrays.torch import torch_library
from gett.console.formatting import brief, count
from gett.errors import DTypeError, OptionError, ShapeError
from gett.slices.links import link_for

Index = tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """What a part has of a box.

    Attributes:
        part: Number of the part.
        inside: Where the piece lies in the part.
        target: Where it lies in the box.
    """

    part: int
    inside: Index
    target: Index


class Sharded:
    """A tensor cut along one axis into parts, each an array on a device: one that no device need have room for.

    Attributes:
        parts: The arrays in order.
        axis: Along which they make up the tensor.
        shape: Of the tensor.
        dtype: Of all parts.
        devices: The number of each part's device; -1 for NumPy's arrays.

    Example:
        >>> import gett, numpy as np
        >>> x = gett.Sharded([np.zeros((2, 3)), np.ones((4, 3))], axis=0)
        >>> x.shape, x.devices
        ((6, 3), (-1, -1))
        >>> np.asarray(x).sum()
        np.float64(12.0)
    """

    def __init__(self, parts: Sequence[Any], axis: int = 0) -> None:
        """Make a tensor of its parts, which are not copied.

        Args:
            parts: NumPy's, CuPy's or PyTorch's arrays of one dtype, whose shapes differ along `axis` at most.
            axis: Negative ones count from the end.

        Raises:
            OptionError: There are no parts, or no such axis.
            ShapeError, DTypeError: Parts do not fit together; the text names which.
            MixedArraysError: They are of different libraries.
        """
        if not len(parts):
            raise OptionError("a sharded tensor needs a part at least")
        parts = [numpys(x) for x in parts]
        found = [gather([x], [f"part {i}"]) for i, x in enumerate(parts)]
        self.parts: tuple[Any, ...] = tuple(
            x if isinstance(x, np.ndarray) else arrays[0] for x, (_, _, arrays) in zip(parts, found, strict=True)
        )
        self.kind = found[0][0]
        self.devices = tuple(device for _, device, _ in found)
        first = self.parts[0]
        rank = len(first.shape)
        if isinstance(axis, bool) or not isinstance(axis, int) or not -rank <= axis < rank:
            raise OptionError(f"axis={axis!r}: the parts have {count(rank, 'axis', 'axes')}")
        self.axis = axis % rank
        for i, (kind, _, (part,)) in enumerate(found):
            if kind.name != self.kind.name:
                raise DTypeError(f"part {i} is of {kind.name}, part 0 of {self.kind.name}")
            if part.dtype != first.dtype:
                raise DTypeError(f"part {i} has dtype {part.dtype}, part 0 has {first.dtype}")
            if _without(part.shape, self.axis) != _without(first.shape, self.axis):
                raise ShapeError(
                    f"part {i} has shape {brief(tuple(part.shape))}, part 0 has {brief(tuple(first.shape))}"
                )
        self.dtype = self.kind.describe(first).dtype
        ends = list(itertools.accumulate(x.shape[self.axis] for x in self.parts))
        self._starts = [0, *ends]
        self.shape: tuple[int, ...] = (*first.shape[: self.axis], ends[-1], *first.shape[self.axis + 1 :])

    @classmethod
    def cut(cls, array: Any, devices: Sequence[int], axis: int = 0) -> Sharded:
        """Cut an array into parts of about the same extent, one for each device, and move them there.

        NumPy's arrays are cut into views.
        """
        kind, _, (found,) = gather([numpys(array)], ["the array"])
        link = link_for(kind)
        rank = len(found.shape)
        if not -rank <= axis < rank:
            raise OptionError(f"axis={axis!r}: the array has {count(rank, 'axis', 'axes')}")
        where = even_parts(found.shape[axis % rank], len(devices))
        before = (slice(None),) * (axis % rank)
        parts = [link.move(found[(*before, x)], d) for x, d in zip(where, devices, strict=True)]
        place = link.place(found)
        link.end([d for d in devices if place is not None], devices[0] if place is None else place)
        return cls(parts, axis)

    @property
    def ndim(self) -> int:
        """How many axes the tensor has."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(int(x.nbytes) for x in self.parts)

    def range(self, part: int) -> slice:
        """Where a part lies along the axis."""
        return slice(self._starts[part], self._starts[part + 1])

    def pieces(self, box: Index) -> Iterator[Piece]:
        """The parts' pieces of a box of the tensor."""
        wanted = box[self.axis]
        for part in range(len(self.parts)):
            here = self.range(part)
            start, stop = max(wanted.start, here.start), min(wanted.stop, here.stop)
            if start < stop or (wanted.start == wanted.stop and part == 0):
                inside = slice(start - here.start, stop - here.start)
                target = slice(start - wanted.start, stop - wanted.start)
                yield Piece(part, _with(box, self.axis, inside), _with(_whole(box), self.axis, target))

    def joined(self, box: Index, kind: ArrayKind, bring: Callable[[Any], Any]) -> Any:
        """A box of the tensor as an array of the current device, to which `bring` brings pieces."""
        whole = kind.empty([x.stop - x.start for x in box], self.dtype)
        for piece in self.pieces(box):
            kind.copy(whole[piece.target], bring(self.parts[piece.part][piece.inside]))
        return whole

    def get(self) -> Any:
        """The whole tensor as a NumPy array."""
        return np.concatenate(list(map(self.kind.to_host, self.parts)), self.axis)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """`get`, of parts that are NumPy's arrays.

        Raises:
            TypeError: The parts are on GPUs; CuPy's arrays are not moved to the host in silence either.
        """
        if self.kind is not NUMPY:
            raise TypeError("a tensor on GPUs becomes no NumPy array in silence: call its get()")
        if copy is False:
            raise ValueError("a sharded tensor is no NumPy array without a copy")
        found = self.get()
        return found if dtype is None else found.astype(dtype)

    def __repr__(self) -> str:
        extents = " + ".join(str(x.shape[self.axis]) for x in self.parts)
        return f"<Sharded {self.shape} {self.dtype}, axis {self.axis}: {extents} on {list(self.devices)}>"


def even_parts(extent: int, count: int) -> list[slice]:
    """So many parts of about the same extent, the last ones shorter or empty."""
    length = -(-extent // count)
    return [slice(min(i * length, extent), min((i + 1) * length, extent)) for i in range(count)]


def numpys(array: Any) -> Any:
    """The memory of a tensor of the host as NumPy's array; anything else as it is."""
    torch = torch_library()
    held = torch is not None and isinstance(array, torch.tensor) and array.device.type == "cpu"
    return array.detach().resolve_conj().numpy() if held else array


def _without(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _with(index: Index, axis: int, part: slice) -> Index:
    return (*index[:axis], part, *index[axis + 1 :])


def _whole(box: Index) -> Index:
    return tuple(slice(0, x.stop - x.start) for x in box)
