"""Which intermediates of a network PyTorch keeps for `backward`: as many as a limit allows; others are computed again.

Owns the hooks by which PyTorch saves a recipe in the place of a tensor, and the way from a recipe to the tensor. Knows
products; knows neither subscripts nor paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from gett.arrays.torch_autograd import Product
from gett.errors import GradientError


@dataclass(frozen=True, slots=True)
class _Recipe:
    """What is saved in the place of an intermediate: its number."""

    number: int


class Intermediates:
    """The tensors of one network while derivatives are recorded.

    Args:
        module: `torch`.
        limit: Most bytes of intermediates that are kept, and as many again while `backward` runs.
        operands: What the first products read.
    """

    def __init__(self, module: Any, limit: int, operands: Sequence[Any]) -> None:
        self._module, self._limit, self._used = module, limit, 0
        self._count = len(operands)
        self._kept = {i: (x.detach(), x._version) for i, x in enumerate(operands)}
        self._made: dict[int, tuple[Product, tuple[int, ...]]] = {}
        self._spare: dict[int, Any] = {}

    def saving(self, numbers: Sequence[int], tensors: Sequence[Any]) -> AbstractContextManager[Any]:
        """A context in which a product of tensors saves recipes of those that are not kept."""
        dropped = {x.data_ptr(): i for i, x in zip(numbers, tensors, strict=True) if i not in self._kept}

        def pack(x: Any) -> Any:
            number = dropped.get(x.data_ptr())
            return x if number is None else _Recipe(number)

        def unpack(found: Any) -> Any:
            return self._computed(found.number) if isinstance(found, _Recipe) else found

        hooks: AbstractContextManager[Any] = self._module.autograd.graph.saved_tensors_hooks(pack, unpack)
        return hooks

    def add(self, number: int, tensor: Any, product: Product, inputs: tuple[int, ...]) -> None:
        """Take note of an intermediate, and keep it where there is room."""
        self._made[number] = product, inputs
        size = _bytes(tensor)
        if not size or self._used + size <= self._limit:
            self._used += size
            self._kept[number] = tensor.detach(), tensor._version

    def _computed(self, number: int) -> Any:
        """An intermediate that was not kept; those on the way stay for later while there is room."""
        if number in self._spare:
            return self._spare.pop(number)
        needed, waiting = set(), [number]
        while waiting:
            i = waiting.pop()
            if i not in self._kept and i not in self._spare:
                needed.add(i)
                waiting += self._made[i][1]
        values: dict[int, Any] = {}
        for i in sorted(needed):
            product, inputs = self._made[i]
            read = tuple(values.pop(k) if k in values else self._read(k) for k in inputs)
            with self._module.no_grad():
                values[i] = product.run(product, read, None)
            for k, x in zip(inputs, read, strict=True):
                if k in needed:
                    self._put_by(k, x)
        return values[number]

    def _read(self, number: int) -> Any:
        """A tensor that is there.

        Raises:
            GradientError: It was written since it was read.
        """
        if number in self._spare:
            return self._spare[number]
        tensor, version = self._kept[number]
        if tensor._version != version:
            raise GradientError(
                f"operand {number} has been modified by an inplace operation, but checkpoint= computes intermediates "
                "of it again: clone it first"
            )
        return tensor

    def _put_by(self, number: int, tensor: Any) -> None:
        """Keep a tensor for a later product of `backward`, which takes the last ones first."""
        self._spare[number] = tensor
        while self._spare and sum(map(_bytes, self._spare.values())) > self._limit:
            del self._spare[min(self._spare)]


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())
