"""From operands to steps: the order of pairwise contractions, what is summed before them, the layout of intermediates.

Owns the way from an opt_einsum path to steps. opt_einsum gives paths only. Knows mode sets, extents and the memory
order of the operands, but neither arrays nor kernels.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gett.errors import GettError, OptionError, PathError
from gett.ir.subscripts import Subscripts
from gett.network.asking import asked_path
from gett.network.optimize import Bytes, SlicedPath, check_optimize
from gett.network.pairs import Rates, paired
from gett.network.search import searched_path
from gett.network.steps import PathStep

Path = tuple[tuple[int, ...], ...]
"""For each contraction the positions of the tensors that it takes; its result comes last."""


@dataclass(frozen=True, slots=True)
class SumFirst:
    """When the modes that only one operand of a pair has are summed in a step of their own, before the product.

    Attributes:
        gain: The products that this saves must be so many times the elements read and multiplied instead.
        least: Products that take as long as one more step.
        wide: Whether sums must be kept in a wider type than the operands', so that they are not rounded twice. A
            partner is then converted in a step of its own.
    """

    gain: float
    least: int
    wide: bool


NEVER = SumFirst(math.inf, 0, False)


def find_steps(
    terms: Sequence[tuple[int, ...]],
    output: tuple[int, ...],
    extents: Sequence[int],
    memory_order: Sequence[Sequence[int]],
    optimize: Any,
    sums: SumFirst,
    times: int = 1,
    rates: Rates | None = None,
) -> tuple[tuple[PathStep, ...], Path]:
    """Steps that contract any number of operands; one or two need no path.

    Args:
        terms: Distinct modes of each operand.
        output: Modes of the result in order.
        extents: Extent of each mode.
        memory_order: Modes of each operand, largest stride first.
        optimize: What `gett.einsum` takes, with no limit in bytes.
        sums: When sums come first.
        times: How often the steps run: the longer they take, the longer a path is searched.
        rates: By which pairs of steps are made together; None for as the path says.

    Returns:
        The steps, and the path that they follow, but for pairs that are made together.

    Raises:
        OptionError: `optimize` has a bad value, its path does not fit, or its limit cannot be kept.
    """
    path: Path = (tuple(range(len(terms))),)
    if len(terms) > 2:
        path = _find_path(terms, output, extents, optimize, times)
    steps = _expand(terms, output, extents, path, sums)
    _check_limit(steps, terms, extents, check_optimize(optimize)[1])
    if rates is not None and len(steps) > 1:
        steps = paired(steps, terms, extents, rates)
    return _order_intermediates(steps, terms, output, memory_order), path


def path_of(leaves: Sequence[int], contractions: Sequence[tuple[int, ...]]) -> Any:
    """Numbered contractions, each the numbers of its tensors and of its result, as `optimize=` takes them.

    One or two tensors need no path.
    """
    if len(leaves) < 3:
        return True
    live, path = list(leaves), []
    for *group, number in contractions:
        path.append(tuple(live.index(i) for i in group))
        live = [i for i in live if i not in group] + [number]
    return tuple(path)


def path_info(subscripts: Subscripts, shapes: Sequence[tuple[int, ...]], path: Path) -> Any:
    """opt_einsum's `PathInfo` of a path, in the subscripts' own letters where it takes them."""
    import opt_einsum

    names = subscripts.names
    if not all(map(str.isalpha, names)):
        names = tuple(map(opt_einsum.get_symbol, range(len(names))))
    spelled = ["".join(names[m] for m in modes) for modes in (*subscripts.inputs, subscripts.output)]
    equation = f"{','.join(spelled[:-1])}->{spelled[-1]}"
    return opt_einsum.contract_path(equation, *shapes, shapes=True, optimize=list(path))[1]


def _check_limit(
    steps: Sequence[PathStep], terms: Sequence[tuple[int, ...]], extents: Sequence[int], limit: int | str | Bytes | None
) -> None:
    """Refuse steps beyond a limit: opt_einsum then asks for many tensors at once, which are taken in pairs here.

    Raises:
        OptionError: The text says which limit would do.
    """
    if limit is None:
        return
    assert not isinstance(limit, Bytes)

    def size(modes: Sequence[int]) -> int:
        return math.prod(extents[m] for m in modes)

    most = max(map(size, terms)) if isinstance(limit, str) else limit
    largest = max((size(s.modes) for s in steps[:-1]), default=0)
    if largest > most:
        raise OptionError(
            f"optimize= or memory_limit= limits intermediates to {most} elements, but the path found has one of "
            f"{largest}: raise the limit, or give a path"
        )


def _find_path(
    terms: Sequence[tuple[int, ...]], output: tuple[int, ...], extents: Sequence[int], optimize: Any, times: int
) -> Path:
    import opt_einsum

    count = len(terms)
    method, limit = check_optimize(optimize, count)
    if isinstance(method, SlicedPath):
        raise PathError(
            "optimize= has slices, which are run by einsum, contract and plan where no derivatives are recorded, and "
            "not within JAX's or PyTorch's transformations: give a path without them"
        )
    if method is False:
        return ((0, 1), *((0, count - 1 - i) for i in range(1, count - 1)))
    if isinstance(method, tuple):  # a path, which was checked
        return method
    present = set().union(*map(set, terms))
    spelled = [[opt_einsum.get_symbol(m) for m in term] for term in terms]
    result = "".join(opt_einsum.get_symbol(m) for m in output if m in present)
    equation = ",".join(map("".join, spelled)) + "->" + result
    shapes = [tuple(extents[m] for m in term) for term in terms]
    try:
        if not isinstance(method, str):
            assert not isinstance(limit, Bytes)
            letters = opt_einsum.get_symbol
            sizes = {letters(m): extents[m] for m in present}
            return asked_path(method, spelled, [letters(m) for m in output if m in present], sizes, limit)
        path, _ = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize=method, memory_limit=limit)
        if method == "auto" and limit is None:
            path = searched_path(terms, [m for m in output if m in present], extents, path, times)
    except GettError:
        raise
    except (TypeError, ValueError, LookupError, RuntimeError) as error:  # whatever a path function objects to
        raise OptionError(f"optimize={optimize!r} found no path: {error}") from error
    return tuple(tuple(p) for p in path)


def _expand(
    terms: Sequence[tuple[int, ...]],
    output: tuple[int, ...],
    extents: Sequence[int],
    path: Sequence[tuple[int, ...]],
    sums: SumFirst,
) -> list[PathStep]:
    """Steps of one or two tensors; a path step of more is taken from left to right."""
    modes = {i: set(term) for i, term in enumerate(terms)}
    live = list(range(len(terms)))
    holders = Counter(m for term in modes.values() for m in term)  # how many tensors that are left have each mode
    holders.update(output)
    steps: list[PathStep] = []

    def add(inputs: Sequence[int], kept: set[int], wide: bool = False) -> int:
        number = len(terms) + len(steps)
        modes[number] = kept
        steps.append(PathStep(tuple(inputs), number, tuple(sorted(kept)), wide))
        return number

    def contract(group: list[int]) -> int:
        inside = Counter(m for i in group for m in modes[i])
        needed = {m for m, n in inside.items() if holders[m] > n}
        if len(group) == 1 and len(needed) == len(inside) and len(terms) > 1:
            return group[0]
        if len(group) == 2:
            alone = [modes[i] - needed - modes[j] for i, j in (group, group[::-1])]
            first = _summed_first([modes[i] for i in group], alone, extents, sums)
            if first:
                group = [
                    add([i], modes[i] - alone[n], sums.wide) if n in first or sums.wide else i
                    for n, i in enumerate(group)
                ]
        holders.subtract(inside)
        holders.update(needed)
        return add(group, needed)

    for positions in path:
        group = [live[i] for i in sorted(positions)]
        for i in sorted(positions, reverse=True):
            del live[i]
        current = group[0] if len(group) > 1 else contract(group)
        for other in group[1:]:
            current = contract([current, other])
        live.append(current)
    return steps


def _summed_first(
    pair: Sequence[set[int]], alone: Sequence[set[int]], extents: Sequence[int], sums: SumFirst
) -> tuple[int, ...]:
    """Which of two tensors to sum before the product over the modes that it has `alone`: what costs least."""

    def volume(group: Iterable[int]) -> int:
        return math.prod(extents[m] for m in group)

    def cost(first: tuple[int, ...]) -> float:
        products = volume((pair[0] | pair[1]).difference(*(alone[n] for n in first)))
        if not first:
            return products
        passes = (0, 1) if sums.wide else first
        return sums.gain * (products + sum(volume(pair[n]) for n in passes)) + sums.least * len(passes)

    able = [n for n in (0, 1) if alone[n]]
    choices = itertools.chain.from_iterable(itertools.combinations(able, r) for r in range(len(able) + 1))
    return min(choices, key=cost)


def _order_intermediates(
    steps: Sequence[PathStep],
    terms: Sequence[tuple[int, ...]],
    output: tuple[int, ...],
    memory_order: Sequence[Sequence[int]],
) -> tuple[PathStep, ...]:
    """Give each intermediate the mode order that its consumer wants.

    From slowest to fastest these are: modes that the consumer keeps as batch, modes that it keeps as free, modes that
    it sums. Batch and free modes have the order of the consumer's own result, so that each group fuses and stores run
    along. Summed modes have the order in which the partner has them in memory, so that both operands run along K
    together. Where the partner is an intermediate too, the summed modes go by mode number in both. The last step is
    fixed, so orders are found from the end.
    """
    count = len(terms)
    sets = {i: set(t) for i, t in enumerate(terms)} | {s.output: set(s.modes) for s in steps}
    order: dict[int, tuple[int, ...]] = {steps[-1].output: output}
    for step in reversed(steps):
        result = order[step.output]
        for i, tensor in enumerate(step.inputs):
            if tensor < count:
                continue
            partner = step.inputs[1 - i] if len(step.inputs) == 2 else None
            shared = sets[partner] if partner is not None else set()
            kept = [m for m in result if m in sets[tensor]]
            batch = [m for m in kept if m in shared]
            free = [m for m in kept if m not in shared]
            summed = sorted(sets[tensor] - set(kept))
            alone = [m for m in summed if m not in shared]
            common = [m for m in summed if m in shared]
            if partner is not None and partner < count:
                common.sort(key=list(memory_order[partner]).index)
            order[tensor] = (*batch, *free, *alone, *common)
    return tuple(replace(s, modes=order[s.output]) for s in steps)
