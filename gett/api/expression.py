"""The public function `contract_expression`: a network with its path, called many times, of which parts are constant.

Owns which contractions are of constants alone, and when they are computed: once for each library, device and dtype.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from gett.api.einsum import einsum
from gett.api.paths import describe_operand, describe_shape, find_network_path
from gett.arrays.held import bring, finish, refuse_recording
from gett.arrays.torch import torch_library
from gett.console.formatting import count, printable
from gett.errors import GradientError, OptionError, SubscriptsError
from gett.ir.subscripts import Subscripts, split_arguments, symbols
from gett.ir.tensors import NUMPY_ONLY, SUPPORTED, Casting, TensorSpec, factor_dtype, parse_dtype, promote
from gett.network.limits import parse_limit
from gett.network.optimize import asks_autotune, check_one_limit, freeze_optimize
from gett.network.path import Path, path_of
from gett.plans.call import check_conj
from gett.plans.checks import check_bytes, check_places, check_workspace_limit, is_shape
from gett.typing import DeviceArrayT, DType, NumPyOperand, Optimize, Order, Precision, Size, SupportsArray

if TYPE_CHECKING:
    from numpy.typing import NDArray


def contract_expression(
    subscripts: Any,
    /,
    *operands: Any,
    constants: Collection[int] | None = None,
    optimize: Optimize = True,
    memory_limit: Size | float | None = None,
    dtype: DType = None,
    order: Order | None = "K",
    casting: Casting = "safe",
    precision: Precision | None = None,
    conj: Sequence[bool] | None = None,
    workspace_limit: Size | None = None,
    checkpoint: Size | None = None,
) -> ContractExpression:
    """A contraction whose path is found once, to be called with arrays, as `opt_einsum.contract_expression` gives it.

    Operands that stay the same are held as constants: what is contracted of them alone is computed at the first call
    and kept. Calls take arrays of any library that `einsum` takes; constants of NumPy are brought to where they are.

    Args:
        subscripts: As for `einsum`, the interleaved form included.
        operands: Shapes, and arrays in the places that `constants` names. Calls may bring other extents, for which the
            path holds too.
        constants: Places of the operands that are constants, counted from 0.
        optimize: As for `einsum`, but not `"autotune"`.
        memory_limit: As for `einsum`, of each call.
        dtype: As for `einsum`; so are `order`, `casting`, `precision`, `conj` and `workspace_limit`.
        order: Memory order of results.
        casting: NumPy's rule for conversions.
        precision: How products are formed.
        conj: One bool for each operand, constants included.
        workspace_limit: Most device memory for partial sums and copies.
        checkpoint: As for `einsum`.

    Returns:
        A function of the arrays that are no constants, in their order, and of `out=`.

    Raises:
        GettError: As `einsum`; OptionError if `constants` names what is no operand.

    Example:
        >>> import gett, numpy as np
        >>> hamiltonian, basis = np.diag([1.0, 2.0, 3.0]), np.ones((3, 2))
        >>> expression = gett.contract_expression(
        ...     "ai,ab,bj,j->i", basis, hamiltonian, basis, (2,), constants=[0, 1, 2]
        ... )
        >>> expression(np.array([1.0, 0.5]))
        array([9., 9.])
    """
    if asks_autotune(optimize):
        raise OptionError("optimize='autotune' measures kernels, an expression finds a path: call gett.autotune first")
    spec, found = split_arguments(subscripts, operands)
    held = check_places(constants, len(found), "constants")
    tensors = [
        (describe_shape if is_shape(x) and i not in held else describe_operand)(x, f"operand {i}")
        for i, x in enumerate(found)
    ]
    flags = check_conj(conj, len(found)) or (False,) * len(found)
    known, path, info = find_network_path(spec, tensors, optimize, None)
    limit = check_workspace_limit(workspace_limit)
    options: dict[str, Any] = dict(
        dtype=dtype, order=order, casting=casting, precision=precision, workspace_limit=limit
    )
    if memory_limit is not None:
        check_one_limit(freeze_optimize(optimize), memory_limit)
        parse_limit(memory_limit)
        options["memory_limit"] = memory_limit
    if checkpoint is not None:
        options["checkpoint"] = check_bytes(checkpoint, "checkpoint")
    return ContractExpression(known, path, info, {i: found[i] for i in held}, flags, options)


@dataclass(frozen=True, slots=True)
class _Fold:
    """Constants that are contracted with each other before anything else, or one alone.

    Attributes:
        places: Of the operands.
        subscripts: Of their contraction; None where one is taken as it is.
        optimize: Their path, as `einsum` takes it.
        conj: One truth for each of them.
    """

    places: tuple[int, ...]
    subscripts: str | None
    optimize: Any
    conj: tuple[bool, ...]


class ContractExpression:
    """A contraction with its path, to be called with arrays; `contract_expression` makes it.

    Attributes:
        subscripts: The explicit form, constants in brackets: `"ab,[bc,cd]->ad"`.
        path: Of all operands, as `contract_path` gives it.
        path_info: opt_einsum's `PathInfo` of it.
    """

    def __init__(
        self,
        subscripts: Subscripts,
        path: Path,
        info: Any,
        constants: dict[int, Any],
        conj: tuple[bool, ...],
        options: dict[str, Any],
    ) -> None:
        """Made by `gett.contract_expression`.

        Args:
            subscripts: Of all operands.
            path: Of all operands.
            info: opt_einsum's, of the path.
            constants: Arrays by the places of their operands.
            conj: One truth for each operand.
            options: Further arguments of `einsum`.
        """
        names = subscripts.names
        if not all(x.isalpha() or not x.isascii() for x in names):  # labels that a string of subscripts cannot have
            names = tuple(islice(symbols(), len(names)))
        terms = ["".join(names[m] for m in modes) for modes in subscripts.inputs]
        output = "".join(names[m] for m in subscripts.output)
        bracketed = ",".join(f"[{x}]" if i in constants else x for i, x in enumerate(terms)).replace("],[", ",")
        self.subscripts = f"{bracketed}->{output}"
        self.path, self.path_info = path, info
        self._constants, self._options = constants, options
        variables = [i for i in range(len(terms)) if i not in constants]
        self._count = len(variables)
        roots, inside, outside = _part(path, len(terms), constants)
        self._folds = []
        left, flags = [terms[i] for i in variables], [conj[i] for i in variables]
        for root in roots:
            places, steps = inside[root]
            needed = set(output).union(*(terms[i] for i in range(len(terms)) if i not in places))
            kept = "".join(dict.fromkeys(x for i in places for x in terms[i] if x in needed))
            whole = f"{','.join(terms[i] for i in places)}->{kept}"
            plain = whole == f"{kept}->{kept}"
            chosen = tuple(conj[i] for i in places)
            self._folds.append(_Fold(places, None if plain else whole, path_of(places, steps), chosen))
            left.append(kept)
            flags.append(plain and chosen[0])
        self._spec = f"{','.join(left)}->{output}"
        self._conj = flags if any(flags) else None
        self._optimize = path_of((*variables, *roots), outside)
        self._held: dict[Any, list[Any]] = {}

    @overload
    def __call__(
        self, *arrays: NDArray[Any] | np.generic | complex, out: NDArray[Any] | None = None
    ) -> NDArray[Any]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, *arrays: DeviceArrayT | complex, out: DeviceArrayT | None = None
    ) -> DeviceArrayT: ...
    @overload
    def __call__(self, *arrays: SupportsArray | NumPyOperand, out: NDArray[Any] | None = None) -> NDArray[Any]: ...
    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """The contraction of arrays with the constants.

        Args:
            arrays: Those that are no constants, in the order of the subscripts.
            out: As for `einsum`.

        Raises:
            SubscriptsError: Another number of arrays than the expression takes.
            GettError: As `einsum`; operands are counted as they are given here.
        """
        if len(arrays) != self._count:
            raise SubscriptsError(f"{self!r} takes {count(self._count, 'array')}, {len(arrays)} were given")
        held = self._constants_for(arrays, out) if self._folds else ()
        return einsum(self._spec, *arrays, *held, out=out, optimize=self._optimize, conj=self._conj, **self._options)

    def __repr__(self) -> str:
        return f"<ContractExpression {printable(self.subscripts)}>"

    def __str__(self) -> str:
        """The expression, and opt_einsum's table of its contractions."""
        return f"{self!r}\n{self.path_info}"

    def _constants_for(self, arrays: Sequence[Any], out: Any) -> list[Any]:
        """What takes the constants' place in a call: where the arrays are, in the dtype that the result has.

        Raises:
            GradientError: A constant requires a gradient.
        """
        things = [x if hasattr(x, "dtype") else np.asarray(x) for x in (*arrays, *([] if out is None else [out]))]
        first = things[0] if arrays else None
        key = type(first), str(getattr(first, "device", "")), out is None, *[x.dtype for x in things]
        found = self._held.get(key)
        if found is None:
            found = self._held.setdefault(key, self._fold(first, [parse_dtype(x.dtype) for x in things], out))
        return found

    def _fold(self, first: Any, dtypes: Sequence[np.dtype[Any]], out: Any) -> list[Any]:
        """The constants of every fold, contracted.

        Intermediates have the dtype that they would have if all operands were contracted at once.

        Args:
            first: An array of the call, or None.
            dtypes: Of the call's arrays, `out` last.
            out: Of the call.
        """
        constants = {i: bring(x, first) for i, x in self._constants.items()}
        own = {i: parse_dtype(x.dtype) for i, x in constants.items()}
        specs = [TensorSpec((), (), dtype) for dtype in (*dtypes, *own.values())]
        written = specs.pop(len(dtypes) - 1) if out is not None else None
        asked, casting = self._options["dtype"], self._options["casting"]
        result = promote(specs, [], written, asked, casting, SUPPORTED | NUMPY_ONLY)
        torch = torch_library()
        with nullcontext() if torch is None else torch.modes.untransformed():  # what is kept outlives a transformation
            return self._folded(constants, own, result)

    def _folded(self, constants: dict[int, Any], own: dict[int, np.dtype[Any]], result: np.dtype[Any]) -> list[Any]:
        torch, held = torch_library(), []
        for i, x in constants.items():
            if torch is not None and torch.modes.requires_gradient(x):
                raise GradientError(
                    f"constant {i} requires a gradient, but constants are contracted once: pass it in calls, or "
                    "x.detach()"
                )
        for fold in self._folds:
            operands = [constants[i] for i in fold.places]
            if fold.subscripts is not None:
                refuse_recording(operands[0], "constants cannot be contracted")
                real = all(own[i].kind != "c" for i in fold.places)
                options = self._options | {"dtype": factor_dtype(own[fold.places[0]], result) if real else result}
                operands = [einsum(fold.subscripts, *operands, optimize=fold.optimize, conj=fold.conj, **options)]
            held += operands
        if held:
            finish(held[0])  # other streams read it
        return held


def _part(
    path: Path, n: int, constants: Collection[int]
) -> tuple[list[int], dict[int, tuple[tuple[int, ...], list[tuple[int, ...]]]], list[tuple[int, ...]]]:
    """A path parted into the contractions of constants alone and the others; results are numbered on from the operands.

    Returns:
        The tensors of constants alone that the others take; for each such tensor its operands, and the contractions
        that give it; the other contractions. A contraction is the numbers of its tensors, its result's number last.
    """
    inside: dict[int, tuple[tuple[int, ...], list[tuple[int, ...]]]] = {i: ((i,), []) for i in constants}
    outside: list[tuple[int, ...]] = []
    live = list(range(n))
    for number, positions in enumerate(path, n):
        group = [live[p] for p in positions]
        live = [i for i in live if i not in group] + [number]
        if all(i in inside for i in group):
            parts = [inside[i] for i in group]
            places = tuple(sorted(i for p, _ in parts for i in p))
            inside[number] = places, [*(s for _, steps in parts for s in steps), (*group, number)]
        else:
            outside.append((*group, number))
    taken = {i for step in outside for i in step[:-1]} | set(live)
    return [i for i in inside if i in taken], inside, outside
