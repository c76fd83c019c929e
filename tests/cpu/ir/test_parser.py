"""The grammar of subscripts, against NumPy's own answers where NumPy can parse them."""

from __future__ import annotations

import numpy as np
import pytest

import gett
from gett.errors import LabelError, SubscriptsError
from gett.ir.subscripts import Subscripts, parse, split_arguments, symbols


def explicit(spec, *ranks: int) -> str:
    return str(parse(spec, ranks))


@pytest.mark.parametrize(
    ("text", "ranks", "expected"),
    [
        ("ij,jk", (2, 2), "ij,jk->ik"),
        ("ij,jk->ki", (2, 2), "ij,jk->ki"),
        ("ba", (2,), "ba->ab"),
        ("ii", (2,), "ii->"),
        (" i j , j k -> i k\t", (2, 2), "ij,jk->ik"),
        (",i", (0, 1), ",i->i"),
        ("->", (0,), "->"),
        ("Ba", (2,), "Ba->Ba"),
        ("αβ,βγ", (2, 2), "αβ,βγ->αγ"),
        ("...j,jk", (3, 2), "abj,jk->abk"),
        ("i...,...", (2, 3), "ic,abc->abci"),
        ("...,...->...", (2, 1), "ab,b->ab"),
        ("ij->...", (2,), "ij->"),
        ("...", (0,), "->"),
    ],
)
def test_string_form_is_spelled_out(text, ranks, expected):
    assert explicit(text, *ranks) == expected


def test_ellipses_align_at_their_last_axis():
    found = parse("...k,...k->...", (4, 2))
    assert found.inputs[0][1:] != found.inputs[1]
    assert found.inputs[1] == found.inputs[0][2:]
    assert found.output == found.inputs[0][:3]


@pytest.mark.parametrize(
    "text",
    ["ij->ijk", "ij->ii", "ij->i->j", "i.j", "i...j...->ij", "ij-", "ij>", "1j", "ijk", "i", "ij,jk", "i...->i",
     "..ij", ",ij", "i-j", "i\0j", "ij->......", "....ij"],
)  # fmt: skip
def test_malformed_subscripts_are_refused_where_numpy_refuses(text):
    array = np.ones((2, 3))
    if text != "i...->i":  # fits an array of one axis in NumPy's grammar, see the operand below
        with pytest.raises(ValueError):  # noqa: PT011 - NumPy's texts are its own
            np.einsum(text, array)
    with pytest.raises(SubscriptsError) as caught:
        parse(text, (2,))
    assert isinstance(caught.value, ValueError)


def test_messages_name_operand_and_mode():
    with pytest.raises(SubscriptsError, match="operand 1 has 3 axes, its subscripts name 2"):
        parse("ij,jk", (2, 3))
    with pytest.raises(SubscriptsError, match="mode 'z'"):
        parse("ij->z", (2,))
    with pytest.raises(SubscriptsError, match="2 operands, 3 were given"):
        parse("ij,jk", (2, 2, 2))
    with pytest.raises(SubscriptsError, match="'1' in operand 0"):
        parse("i1", (2,))


def test_interleaved_form():
    a, b = object(), object()
    spec, operands = split_arguments(a, ([0, 1], b, (1, 2), [2, 0]))
    assert operands == (a, b)
    assert explicit(spec, 2, 2) == "ab,bc->ca"
    spec, _ = split_arguments(a, ([Ellipsis, 5], b, [5, 3]))
    assert parse(spec, (3, 2)) == Subscripts(((2, 3, 0), (0, 1)), (2, 3, 1), ("b", "a", "c", "d"))


def test_interleaved_labels_may_be_anything_hashable():
    spec, _ = split_arguments(0, (["batch", ("k", 1)], 1, [("k", 1), frozenset()]))
    found = parse(spec, (2, 2))
    assert found.inputs == ((0, 1), (1, 2))
    assert found.output == (0, 2)
    assert len(set(found.names)) == 3


def test_interleaved_implicit_output_is_sorted_where_labels_compare():
    spec, _ = split_arguments(0, ([7, -2],))
    assert parse(spec, (2,)).output == (1, 0)
    spec, _ = split_arguments(0, (["y", 3],))
    assert parse(spec, (2,)).output == (0, 1)


class Label:
    """A label whose own code fails, in one method."""

    def __init__(self, name, error=None, **fails):
        self.name, self.error, self.fails = name, error, fails

    def _answer(self, method, usual):
        if method in self.fails:
            raise self.fails[method]
        return usual

    def __hash__(self):
        return self._answer("hash", 1)  # the same for all, so that all are compared

    def __eq__(self, other):
        return self._answer("eq", self is other)

    def __lt__(self, other):
        return self._answer("lt", self.name < other.name)

    def __repr__(self):
        return self._answer("repr", f"Label {self.name}")


@pytest.mark.parametrize("method", ["hash", "eq", "lt"])
@pytest.mark.parametrize("kind", [ValueError, ZeroDivisionError, RecursionError])
def test_what_labels_themselves_raise_is_a_label_error(method, kind):
    error = kind("no answer")
    i, j, k = (Label(x, **{method: error}) for x in "ijk")
    a = np.ones((2, 2))
    with pytest.raises(LabelError, match="no answer") as caught:
        gett.einsum(a, [i, j], a, [j, k])
    assert caught.value.__cause__ is error
    if method == "lt":
        assert "Label i, Label k" in str(caught.value)
        np.testing.assert_array_equal(gett.einsum(a, [k, j], a, [j, i], [k, i]), a @ a)  # nothing is to be ordered
    with pytest.raises(KeyboardInterrupt):
        gett.einsum(a, [Label(x, **{method: KeyboardInterrupt()}) for x in "ij"])


def test_labels_that_cannot_be_shown_are_named_by_their_type():
    deep = ()
    for _ in range(2000):
        deep = (deep,)
    for label, name in ((Label("i", repr=ValueError()), "<Label>"), (deep, "<tuple>"), (10**5000, "<int>")):
        with pytest.raises(SubscriptsError, match=f"the output names mode {name}, which no operand has"):
            gett.einsum(np.ones(2), [0], [label])


@pytest.mark.parametrize("labels", [3, None, [[0], 1], object()])
def test_label_lists_that_are_none_are_type_errors(labels):
    with pytest.raises(LabelError) as caught:
        split_arguments(np.ones(2), (labels,))
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("second", [np.full((3, 3), 7.25), [[7.25] * 3] * 3, np.full(3, 7.25)[:, None]])
def test_a_label_error_tells_what_it_got_and_prints_no_array(second):
    with pytest.raises(LabelError, match="labels of operand 0 must be a list of hashable labels") as caught:
        split_arguments(np.ones((3, 3)), (second,))
    assert "7.25" not in str(caught.value)
    assert type(second).__name__ in str(caught.value)
    assert ("subscripts string" in str(caught.value)) is isinstance(second, np.ndarray)


def test_arguments_without_operands():
    for args in (("ij", ()), (np.ones(2), ())):
        with pytest.raises(SubscriptsError):
            split_arguments(*args)


def test_many_labels():
    labels = [s for s, _ in zip(symbols(), range(300), strict=False)]
    assert len(set(labels)) == 300
    text = "".join(labels[:150]) + "," + "".join(labels[100:])
    found = parse(text, (150, 200))
    assert len(found.output) == 250
    assert found.names == tuple(labels)


def test_symbols_skip_surrogates():
    assert not any(0xD800 <= ord(s) < 0xE000 for s, _ in zip(symbols(), range(60_000), strict=False))
