"""The path of a network told to people: operations along it, operations without it, the largest intermediate."""

from __future__ import annotations

from decimal import Decimal

from gett.console.formatting import format_quantity
from gett.ir.build import resolve_extents
from gett.ir.subscripts import parse
from gett.network.path import Path
from gett.network.request import PlanRequest
from gett.network.search import PathCosts, costs


def path_costs(request: PlanRequest, path: Path) -> PathCosts:
    """Operations along a path of a request and without one, and the largest intermediate."""
    shapes, out = [t.shape for t in request.operands], request.out
    subscripts = parse(request.spec, list(map(len, shapes)))
    extents = resolve_extents(subscripts, shapes, None if out is None else out.shape)
    return costs(subscripts.inputs, subscripts.output, extents, path)


def explain_path(request: PlanRequest, path: Path) -> str:
    """A line that sums up what a path costs and gains."""
    found = path_costs(request, path)
    best, naive = Decimal(found.along), Decimal(found.without)
    return (
        f"{format_quantity(best)}op along the path, {format_quantity(naive)}op without one "
        f"({format_quantity(naive / best if best else 1).rstrip()} times); largest intermediate "
        f"{format_quantity(found.largest)}elements"
    )
