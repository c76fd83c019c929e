"""Subscripts to mode numbers: strings, interleaved label lists, ellipses, implicit outputs.

Owns the grammar. Knows ranks, but neither extents nor dtypes nor arrays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gett.console.formatting import brief
from gett.errors import GettError, LabelError, SubscriptsError

# A string, or one label list per operand and last the output's (None: implicit).
Spec = str | tuple[tuple[Hashable, ...] | None, ...]
_Term = tuple[Any, ...]  # labels, with `Ellipsis` among them

_BLANKS = {ord(ch): None for ch in " \t\n\r\f\v\xa0"}
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Subscripts:
    """Subscripts with every ellipsis spelled out.

    Attributes:
        inputs: Mode number of each axis of each operand; a mode may repeat within one operand.
        output: Mode number of each axis of the result, all distinct.
        names: One distinct character per mode, for display; mode numbers index it.
    """

    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    names: tuple[str, ...]

    def spell(self, modes: Iterable[int]) -> str:
        """Modes as subscripts, e.g. `"kjicba"`."""
        return "".join(self.names[m] for m in modes)

    def __str__(self) -> str:
        """The explicit form, e.g. `"ij,jk->ik"`."""
        return ",".join(map(self.spell, self.inputs)) + "->" + self.spell(self.output)


def split_arguments(first: Any, rest: Sequence[Any]) -> tuple[Spec, tuple[Any, ...]]:
    """Tell the string form `("ij,jk", a, b)` from the interleaved form `(a, [0, 1], b, [1, 2], [0, 2])`.

    Returns:
        A hashable description of the subscripts, and the operands.

    Raises:
        SubscriptsError: There is no operand, or an operand has no label list.
        LabelError: A label list is not a sequence of hashable labels.
    """
    if isinstance(first, bytes):
        first = first.decode("ascii", errors="replace")
    if isinstance(first, str):
        if not rest:
            raise SubscriptsError("einsum needs at least one operand after the subscripts string")
        return str(first), listed(str(first), tuple(rest))
    if not rest:
        raise SubscriptsError(
            "einsum needs a subscripts string and operands, or operands each followed by a label list"
        )
    args = (first, *rest)
    pairs = len(args) // 2
    with _labels_own_errors():
        lists = [_label_list(args[2 * i + 1], f"operand {i}") for i in range(pairs)]
        output = _label_list(args[-1], "the output") if len(args) % 2 else None
    return (*lists, output), args[0 : 2 * pairs : 2]


def listed(spec: Spec, operands: Sequence[Any]) -> tuple[Any, ...]:
    """The operands, which may stand in one list where subscripts name several: PyTorch's form `("ij,jk", [a, b])`."""
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)) and operand_count(spec) > 1:
        return tuple(operands[0]) if len(operands[0]) > 1 else tuple(operands)
    return tuple(operands)


def operand_count(spec: Spec) -> int:
    """How many operands subscripts describe."""
    return spec.partition("->")[0].count(",") + 1 if isinstance(spec, str) else len(spec) - 1


def _label_list(labels: Any, where: str) -> tuple[Hashable, ...]:
    try:
        found = tuple(labels)
    except TypeError as error:
        raise LabelError(f"the labels of {where} must be a list of hashable labels, not {_spell(labels)}") from error
    for i, label in enumerate(found):
        try:
            hash(label)
        except TypeError as error:
            hint = "; operands without a subscripts string are each followed by a list of labels"
            raise LabelError(
                f"the labels of {where} must be a list of hashable labels, but label {i} of {_spell(labels)} is "
                f"{_spell(label)}{hint if hasattr(labels, 'shape') else ''}"
            ) from error
    return found


def _spell(thing: Any) -> str:
    """What a thing is, in words: an array's numbers help nobody."""
    name = type(thing).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}" if thing is not None else "None"


def parse(spec: Spec, ranks: Sequence[int]) -> Subscripts:
    """Resolve subscripts for operands of the given ranks.

    Raises:
        SubscriptsError: The subscripts are malformed or do not fit the operands; the text names the operand.
    """
    if isinstance(spec, str):
        return _resolve(spec, *_split_string(spec), ranks)
    with _labels_own_errors():
        return _resolve(spec, [t for t in spec[:-1] if t is not None], spec[-1], ranks)


def _resolve(spec: Spec, terms: list[_Term], output: _Term | None, ranks: Sequence[int]) -> Subscripts:
    if len(terms) != len(ranks):
        raise SubscriptsError(f"the subscripts {_show(spec)} describe {len(terms)} operands, {len(ranks)} were given")
    for i, term in enumerate(terms):
        _check_ellipsis(term, f"operand {i}")
    wide = [_ellipsis_rank(term, rank, i) for i, (term, rank) in enumerate(zip(terms, ranks, strict=True))]
    broadcast = max((w for w in wide if w is not None), default=0)

    seen: dict[Hashable, int] = {}  # label -> occurrences over all operands
    for term in terms:
        for label in term:
            if label is not Ellipsis:
                seen[label] = seen.get(label, 0) + 1
    if output is None:
        output = (Ellipsis, *_ordered([label for label, count in seen.items() if count == 1]))
    else:
        _check_output(output, seen, broadcast)

    modes: dict[Hashable, int] = {label: number for number, label in enumerate(seen)}
    dots = tuple(range(len(modes), len(modes) + broadcast))

    def number(term: _Term, width: int) -> tuple[int, ...]:
        result: list[int] = []
        for label in term:
            result.extend(dots[broadcast - width :] if label is Ellipsis else (modes[label],))
        return tuple(result)

    inputs = tuple(number(term, w or 0) for term, w in zip(terms, wide, strict=True))
    return Subscripts(inputs, number(output, broadcast), _display_names(seen, broadcast))


@lru_cache(maxsize=1024)
def sums_products(spec: Spec) -> bool:
    """Whether a mode of two operands is summed, as in a product of matrices.

    Raises:
        SubscriptsError: The subscripts are malformed.
    """
    if isinstance(spec, str):
        terms, output = _split_string(spec)
    else:
        terms, output = [t for t in spec[:-1] if t is not None], spec[-1]
    held = [label for term in terms for label in set(term) if label is not Ellipsis]
    shared = {label for label in held if held.count(label) > 1}
    return bool(shared if output is None else shared.difference(output))


def _show(spec: Spec) -> str:
    return repr(spec) if isinstance(spec, str) else "lists"


def _split_string(text: str) -> tuple[list[_Term], _Term | None]:
    bare = text.translate(_BLANKS)
    left, arrow, right = bare.partition("->")
    terms = [_tokens(term, f"operand {i}", text) for i, term in enumerate(left.split(","))]
    return terms, _tokens(right, "the output", text) if arrow else None


def _tokens(term: str, where: str, text: str) -> _Term:
    """Labels of one term: ASCII letters and any character beyond ASCII; `...` becomes `Ellipsis`."""
    tokens: list[Any] = []
    i = 0
    while i < len(term):
        ch = term[i]
        if ch == ".":
            if term[i : i + 3] != "...":
                raise SubscriptsError(f"a '.' that is no part of an ellipsis '...' in {where} of {text!r}")
            tokens.append(Ellipsis)
            i += 3
            continue
        if ch.isascii() and not ch.isalpha():
            raise SubscriptsError(f"{ch!r} in {where} of {text!r} is no label: labels are letters")
        tokens.append(ch)
        i += 1
    return tuple(tokens)


def _check_ellipsis(term: _Term, where: str) -> None:
    if sum(label is Ellipsis for label in term) > 1:
        raise SubscriptsError(f"more than one ellipsis in the subscripts of {where}")


def _ellipsis_rank(term: _Term, rank: int, i: int) -> int | None:
    """How many axes the ellipsis of operand `i` stands for; None without one."""
    labelled = sum(label is not Ellipsis for label in term)
    has = labelled < len(term)
    if labelled > rank or (not has and labelled < rank):
        hint = "" if labelled > rank else "; an ellipsis '...' would take the other axes"
        raise SubscriptsError(f"operand {i} has {rank} axes, its subscripts name {labelled}{hint}")
    return rank - labelled if has else None


def _check_output(output: _Term, seen: dict[Hashable, int], broadcast: int) -> None:
    _check_ellipsis(output, "the output")
    labels = [label for label in output if label is not Ellipsis]
    for label in labels:
        if label not in seen:
            raise SubscriptsError(f"the output names mode {brief(label)}, which no operand has")
        if labels.count(label) > 1:
            raise SubscriptsError(f"the output names mode {brief(label)} more than once")
    if broadcast and len(labels) == len(output):
        raise SubscriptsError(
            f"the operands' ellipses stand for {broadcast} axes, but the output has no ellipsis to keep them; "
            "name the axes to sum over them"
        )


def _ordered(labels: list[Any]) -> list[Any]:
    """Implicit outputs are sorted; labels that cannot be compared stay in order of appearance.

    Raises:
        LabelError: Labels fail to compare for a reason of their own.
    """
    try:
        return sorted(labels)
    except TypeError:
        return labels
    except Exception as error:
        raise LabelError(
            f"the implicit output's labels {', '.join(map(brief, labels))} cannot be put in order "
            f"({type(error).__name__}: {error}); give the output's labels"
        ) from error


@contextlib.contextmanager
def _labels_own_errors() -> Iterator[None]:
    """What labels raise when they are hashed or compared, as a `LabelError`."""
    try:
        yield
    except GettError:
        raise
    except Exception as error:
        raise LabelError(
            f"a label of the interleaved form cannot be hashed or compared ({type(error).__name__}: {error})"
        ) from error


def _display_names(seen: dict[Hashable, int], broadcast: int) -> tuple[str, ...]:
    """Characters for labels: their own where they are one, else (and for ellipsis axes) unused symbols."""
    taken = {label for label in seen if isinstance(label, str) and len(label) == 1}
    fresh = (s for s in symbols() if s not in taken)
    others: list[Any] = [label for label in seen if label not in taken]
    with contextlib.suppress(LabelError):
        others = _ordered(others)
    own = dict(zip(others, fresh, strict=False))
    names = [str(label) if label in taken else own[label] for label in seen]
    return (*names, *(next(fresh) for _ in range(broadcast)))


def symbols() -> Iterator[str]:
    """Letters first, then characters beyond ASCII, without surrogates."""
    yield from _LETTERS
    for code in range(0xC0, 0x10FFFF):
        if not 0xD800 <= code < 0xE000:
            yield chr(code)
