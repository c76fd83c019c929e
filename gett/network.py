"""More than two operands: the order of pairwise contractions, and the mode order of each intermediate.

Owns the way from an opt_einsum path to pairwise steps. opt_einsum gives paths only. Knows mode sets and the memory
order of the operands, but neither arrays nor kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gett.errors import OptionError

AUTOTUNE = "autotune"  # asks for measured kernels; the path is found as by default
_WITHOUT_LOOKUP = ("auto", "greedy", "optimal")


@dataclass(frozen=True, slots=True)
class PathStep:
    """One contraction of a network.

    Attributes:
        inputs: One or two tensors: numbers below the count of operands are operands, the others results of steps.
        output: Number of the result.
        modes: Modes of the result, slowest first (the last step's: the requested output).
    """

    inputs: tuple[int, ...]
    output: int
    modes: tuple[int, ...]


def freeze_optimize(optimize: Any) -> Any:
    """`optimize=` with lists as tuples, so that it can be part of a key."""
    if isinstance(optimize, (list, tuple)):
        return tuple(freeze_optimize(x) for x in optimize)
    return optimize


def check_optimize(optimize: Any) -> tuple[Any, int | None]:
    """What opt_einsum is asked for: an algorithm or a path, and a limit on intermediates in elements.

    False and None ask for no optimisation: pairs from left to right, returned as False.

    Raises:
        OptionError: The value means nothing to NumPy or opt_einsum.
    """
    if optimize is None or optimize is False:
        return False, None
    if optimize is True:
        return "auto", None
    if isinstance(optimize, str):
        if optimize == AUTOTUNE:
            return "auto", None
        if optimize not in _WITHOUT_LOOKUP:
            from opt_einsum.paths import get_path_fn

            try:
                get_path_fn(optimize)
            except KeyError as error:
                raise OptionError(f"optimize={optimize!r} is no path algorithm of opt_einsum: {error}") from error
        return optimize, None
    if isinstance(optimize, (tuple, list)):
        parts = list(optimize)
        if len(parts) == 2 and isinstance(parts[0], str) and isinstance(parts[1], (int, float)):
            return check_optimize(parts[0])[0], int(parts[1])
        if parts and parts[0] == "einsum_path":
            parts = parts[1:]
        if all(isinstance(p, (tuple, list)) and p and all(isinstance(i, int) for i in p) for p in parts):
            return tuple(tuple(p) for p in parts), None
    elif callable(optimize):
        return optimize, None
    raise OptionError(
        f"optimize={optimize!r}; it must be True, False, a name such as 'greedy', a path such as [(0, 1), (0, 1)], "
        "or a PathOptimizer of opt_einsum"
    )


def find_steps(
    terms: Sequence[tuple[int, ...]],
    output: tuple[int, ...],
    extents: Sequence[int],
    memory_order: Sequence[Sequence[int]],
    optimize: Any,
) -> tuple[tuple[PathStep, ...], Any]:
    """Steps that contract a network of at least three operands.

    Args:
        terms: Distinct modes of each operand.
        output: Modes of the result in order.
        extents: Extent of each mode.
        memory_order: Modes of each operand, largest stride first.
        optimize: What `gett.einsum` takes.

    Returns:
        The steps, and opt_einsum's `PathInfo`.

    Raises:
        OptionError: `optimize` has a bad value, or its path does not fit.
    """
    path, info = _find_path(terms, output, extents, optimize)
    steps = _expand(terms, output, path)
    return _order_intermediates(steps, terms, output, memory_order), info


def _find_path(
    terms: Sequence[tuple[int, ...]], output: tuple[int, ...], extents: Sequence[int], optimize: Any
) -> tuple[list[tuple[int, ...]], Any]:
    import opt_einsum

    method, limit = check_optimize(optimize)
    count = len(terms)
    if method is False:
        method = [(0, 1), *((0, count - 1 - i) for i in range(1, count - 1))]
    elif isinstance(method, tuple):
        _check_path(method, count)
        method = list(method)
    present = set().union(*map(set, terms))
    spelled = [[opt_einsum.get_symbol(m) for m in term] for term in terms]
    result = "".join(opt_einsum.get_symbol(m) for m in output if m in present)
    equation = ",".join(map("".join, spelled)) + "->" + result
    shapes = [tuple(extents[m] for m in term) for term in terms]
    try:
        path, info = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize=method, memory_limit=limit)
    except (TypeError, ValueError, KeyError, IndexError) as error:  # whatever a path function objects to
        raise OptionError(f"optimize={optimize!r} found no path: {error}") from error
    return [tuple(p) for p in path], info


def _check_path(path: Sequence[tuple[int, ...]], count: int) -> None:
    for group in path:
        if len(set(group)) != len(group) or not all(0 <= i < count for i in group):
            raise OptionError(f"the path step {group} does not fit the {count} tensors that are left")
        count += 1 - len(group)
    if count != 1:
        raise OptionError(f"the path leaves {count} tensors uncontracted")


def _expand(
    terms: Sequence[tuple[int, ...]], output: tuple[int, ...], path: Sequence[tuple[int, ...]]
) -> list[PathStep]:
    """Steps of one or two tensors; a path step of more is taken from left to right."""
    modes = {i: set(term) for i, term in enumerate(terms)}
    live = list(range(len(terms)))
    steps: list[PathStep] = []

    def contract(group: list[int], others: list[int]) -> int:
        needed = set(output).union(*(modes[i] for i in others))
        union = set().union(*(modes[i] for i in group))
        if len(group) == 1 and union <= needed:
            return group[0]
        number = len(terms) + len(steps)
        modes[number] = union & needed
        steps.append(PathStep(tuple(group), number, tuple(sorted(modes[number]))))
        return number

    for positions in path:
        group = [live[i] for i in sorted(positions)]
        live = [t for t in live if t not in group]
        current = group[0] if len(group) > 1 else contract(group, live)
        for k in range(1, len(group)):
            current = contract([current, group[k]], live + group[k + 1 :])
        live.append(current)
    return steps


def _order_intermediates(
    steps: Sequence[PathStep],
    terms: Sequence[tuple[int, ...]],
    output: tuple[int, ...],
    memory_order: Sequence[Sequence[int]],
) -> tuple[PathStep, ...]:
    """Give each intermediate the mode order that its consumer wants.

    From slowest to fastest: modes that the consumer keeps as batch, modes that it keeps as free, both in the order of
    its own result, so that each group fuses and stores run along; then the modes that it sums, in the order in which
    the partner has them in memory, so that both operands run along K together. Where the partner is an intermediate
    too, the summed modes go by mode number in both. The last step is fixed, so orders are found from the end.
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
    return tuple(PathStep(s.inputs, s.output, order[s.output]) for s in steps)
