"""gett as what contracts cotengra's trees: pair by pair, or a whole tree, slices included, as one plan.

cotengra's `implementation=` takes a pair of functions, which see one pair of tensors at a time. So it has no place for
what contracts a tree as a whole. `attach` makes one: a tree then asks gett wherever it is contracted. Owns what trees
and their arguments mean to `gett.einsum`; cotengra itself is not imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from gett.api.einsum import einsum
from gett.api.tensordot import tensordot
from gett.errors import OptionError

__all__ = ["Contractor", "attach", "contract", "implementation"]

implementation = (einsum, tensordot)
"""What `implementation=` takes: `tree.contract(arrays, implementation=gett.cotengra.implementation)`."""

TreeT = TypeVar("TreeT")

# Places in the key under which a tree keeps what contracts it (`ContractionTree.get_contractor`).
_STRIP, _IMPLEMENTATION, _KEY_LENGTH = 3, 5, 7


def contract(tree: Any, arrays: Sequence[Any], *, strip_exponent: bool = False, **options: Any) -> Any:
    """Contract a tree of cotengra by one plan, which runs its slices too.

    Args:
        tree: A `ContractionTree`, sliced or not.
        arrays: Its tensors, in the order of `tree.inputs`, whole.
        strip_exponent: Whether a pair `(mantissa, exponent)` is returned, as for `gett.einsum`.
        options: Of `gett.einsum`, such as `precision=` and `memory_limit=`.

    Returns:
        The result, with axes in the order of `tree.output`.

    Raises:
        GettError: As `gett.einsum`; PathError where the tree fixes a label at one index.

    Example:
        >>> import gett, numpy as np
        >>> from types import SimpleNamespace as Tree  # stands for cotengra's here
        >>> tree = Tree(inputs=("ab", "bc", "cd"), output="ad", sliced_inds={}, get_path=lambda: [(0, 1), (0, 1)])
        >>> gett.cotengra.contract(tree, [np.ones((2, 2))] * 3)
        array([[4., 4.],
               [4., 4.]])
    """
    return _contracted(tree.inputs, tree.output, arrays, tree, strip_exponent, options)


class Contractor:
    """A tree, or one slice of it, as a function of arrays: what `tree.get_contractor()` returns of an attached tree."""

    def __init__(self, tree: Any, strip_exponent: bool = False) -> None:
        """What contracts tensors from which sliced labels are taken.

        Args:
            tree: A `ContractionTree`.
            strip_exponent: Whether a pair `(mantissa, exponent)` is returned.
        """
        self._inputs = [[x for x in term if x not in tree.sliced_inds] for term in tree.inputs]
        self._output = [x for x in tree.output if x not in tree.sliced_inds]
        self._path = [tuple(group) for group in tree.get_path()]
        self._strip = strip_exponent

    def __call__(self, *arrays: Any, strip_exponent: bool | None = None, **cotengras: Any) -> Any:
        """Contract arrays whose axes are those of the slice.

        Args:
            arrays: In the order of the tree's inputs.
            strip_exponent: In place of what was said when it was made.
            cotengras: Options that cotengra passes, such as `backend` and `progbar`; they have no meaning here.

        Raises:
            GettError: As `gett.einsum`.
        """
        strip = self._strip if strip_exponent is None else strip_exponent
        return _contracted(self._inputs, self._output, arrays, self._path, strip, {})


def attach(tree: TreeT) -> TreeT:
    """Let a tree ask gett where it is contracted without an `implementation`, or with `gett.cotengra.implementation`.

    `tree.contract` is then one plan, with the tree's slices. What contracts single slices, `contract_slice` and
    `contract_mpi` among others, has a plan of a slice. Copies of a tree are not attached.

    Args:
        tree: A `ContractionTree`.

    Returns:
        The tree itself.

    Raises:
        OptionError: It keeps no contractors, as the trees of other versions of cotengra may not.
    """
    kept = getattr(tree, "contraction_cores", None)
    if not isinstance(kept, dict):
        raise OptionError(f"attach takes a ContractionTree of cotengra, not {type(tree).__name__}")
    anything: Any = tree
    anything.contraction_cores = _Cores(tree)
    anything.contract = _Contract(tree)
    return tree


class _Cores(dict[Any, Any]):
    """What an attached tree keeps its contractors in: one that is missing is made."""

    def __init__(self, tree: Any) -> None:
        super().__init__()
        self._tree = tree

    def __missing__(self, key: Any) -> Any:
        if not isinstance(key, tuple) or len(key) != _KEY_LENGTH or key[_IMPLEMENTATION] not in (None, implementation):
            raise KeyError(key)
        made = self[key] = Contractor(self._tree, bool(key[_STRIP]))
        return made


class _Contract:
    """`contract` of an attached tree."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree

    def __call__(self, arrays: Sequence[Any], *args: Any, **options: Any) -> Any:
        tree = self._tree
        if args or options.get("implementation") not in (None, implementation):
            return type(tree).contract(tree, arrays, *args, **options)
        return contract(tree, arrays, strip_exponent=options.get("strip_exponent") not in (None, False))


def _contracted(
    inputs: Sequence[Any], output: Sequence[Any], arrays: Sequence[Any], optimize: Any, strip: bool, options: Any
) -> Any:
    """A contraction with any labels, in the interleaved form."""
    if len(arrays) != len(inputs):
        raise OptionError(f"the tree has {len(inputs)} tensors, {len(arrays)} were given")
    operands = [x for array, term in zip(arrays, inputs, strict=True) for x in (array, list(term))]
    found = optimize if len(inputs) > 2 or getattr(optimize, "sliced_inds", None) else True
    return einsum(*operands, list(output), optimize=found, strip_exponent=strip, **options)
