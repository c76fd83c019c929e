"""Limits of memory where no slices run: derivatives that are recorded, JAX, PyTorch's compiler, NumPy's own einsum.

Owns the path that keeps such a limit, and the error where there is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gett.errors import OptionError
from gett.ir.build import resolve_extents
from gett.ir.subscripts import parse
from gett.network.limits import Elements, Share
from gett.network.optimize import Limited, check_optimize
from gett.network.path import NEVER, find_steps
from gett.network.slicing import Network, slicing
from gett.plans.call import Call


def unsliced(call: Call, shapes: Sequence[tuple[int, ...]], itemsize: int, *, kept: bool = False) -> Call:
    """The call with a path that keeps its limit of memory, and no limit any more.

    Args:
        call: What is asked for.
        shapes: Of the operands.
        itemsize: Bytes of an element of the result.
        kept: Whether intermediates are kept for derivatives, as many as `checkpoint` allows.

    Raises:
        OptionError: The limit is a share, or no path keeps it.
    """
    limit = call.memory
    if limit is None:
        return call
    method = check_optimize(call.optimize, len(shapes))[0]
    if isinstance(limit, Share):
        raise OptionError(
            f"memory_limit={limit.part} is a share of a device's memory, which is not known here: give a size"
        )
    if isinstance(limit, Elements):
        return call.changed(memory=None, optimize=Limited(method, limit.count or "max_input"))
    subscripts = parse(call.spec, list(map(len, shapes)))
    extents = resolve_extents(subscripts, shapes)
    terms = [tuple(dict.fromkeys(modes)) for modes in subscripts.inputs]
    least = math.inf
    if 0 in extents:
        return call.changed(memory=None)
    choices: list[Any] = [method]
    if len(shapes) > 2 and not isinstance(method, tuple):
        choices += [Limited(method, n) for n in (limit.size // itemsize, limit.size // itemsize // 4) if n]
    for choice in choices:
        try:
            steps, path = find_steps(terms, subscripts.output, extents, terms, choice, NEVER)
        except OptionError:
            continue
        need = slicing(Network(tuple(terms), subscripts.output, extents, steps), {}).peak
        if kept:
            sizes = sum(math.prod(extents[m] for m in s.modes) for s in steps)
            need = sizes if call.checkpoint is None else min(sizes, need + call.checkpoint // itemsize)
        least = min(least, need * itemsize)
        if need * itemsize <= limit.size:
            return call.changed(memory=None, optimize=path if len(shapes) > 2 else call.optimize)
    where = "where derivatives are recorded" if kept else "here"
    hint = ": checkpoint= bounds what is kept for them, or call within torch.no_grad()" if kept else ""
    raise OptionError(
        f"memory_limit= limits a call to {limit.size} bytes, but the paths found take {least} bytes, and no slices run "
        f"{where}{hint}"
    )
