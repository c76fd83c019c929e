"""`einsum_path`, `contract_path`, `path_info`, limits as sizes, and what a path may not be."""

from __future__ import annotations

import numpy as np
import opt_einsum
import pytest

import gett
from gett.env import parse_size
from tests.cpu.strategies import integers_of

integers = integers_of(np.random.default_rng(8))
CORNER = "ea,fb,abcd,gc,hd->efgh"


def corner():
    small = integers(4, 4)
    return small, small, integers(4, 4, 4, 4), small, small


@pytest.mark.parametrize("optimize", ["greedy", "optimal", True, [(0, 2), (0, 3), (0, 2), (0, 1)]])
def test_contract_path_gives_what_opt_einsum_s_does(optimize):
    path, info = gett.contract_path(CORNER, *corner(), optimize=optimize)
    expected, table = opt_einsum.contract_path(CORNER, *corner(), optimize=optimize)
    assert path == list(expected)
    assert str(info) == str(table)
    by_shape = gett.contract_path(CORNER, *[x.shape for x in corner()], shapes=True, optimize=optimize)
    by_pair = gett.contract_path(CORNER, *[(x.shape, "f4") for x in corner()], optimize=optimize)
    assert by_shape[0] == by_pair[0] == path
    assert gett.plan(CORNER, *corner(), optimize=optimize).path == tuple(path)


def test_einsum_path_gives_what_numpy_s_does_and_both_take_it():
    operands = integers(2, 9), integers(9, 9), integers(9, 1)
    path, table = gett.einsum_path("ij,jk,kl->il", *operands)
    expected, _ = np.einsum_path("ij,jk,kl->il", *operands)
    assert path == expected
    assert "Complete contraction:  ij,jk,kl->il" in table
    result = np.einsum("ij,jk,kl->il", *operands)
    for einsum in (gett.einsum, np.einsum):
        np.testing.assert_array_equal(einsum("ij,jk,kl->il", *operands, optimize=path), result)
    assert gett.einsum_path(operands[0], [0, 1], operands[1], [1, 2], [0, 2])[0] == ["einsum_path", (0, 1)]
    assert gett.einsum_path("ij,jk,kl->il", *operands, optimize=False)[0] == ["einsum_path", (0, 1), (0, 1)]


def test_a_path_of_broadcast_repeated_and_empty_modes():
    a, b = np.ones((4, 4)), np.ones((1, 5))
    for subscripts, operands in (
        ("ii,ij,...->j", (a, np.broadcast_to(np.ones(5), (4, 5)), 2.0)),
        ("ij,jk,kl->il", (b.T, b, np.ones((5, 2)))),
        ("ij,jk,kl->il", (np.ones((3, 0)), np.ones((0, 0)), np.ones((0, 2)))),
        ("ij,jk,kl->il", (np.ones((0, 3)), np.ones((3, 3)), np.ones((3, 2)))),
    ):
        path, info = gett.contract_path(subscripts, *operands)
        np.testing.assert_array_equal(
            gett.einsum(subscripts, *operands, optimize=path), np.einsum(subscripts, *operands)
        )
        assert str(info)
        assert str(gett.plan(subscripts, *operands).path_info)


@pytest.mark.parametrize("subscripts", ["ij,jk->ik", "ij->ji", "ij,kl->"])
def test_a_plan_of_one_or_two_operands_has_a_path(subscripts):
    operands = [((3, 3), "f8")] * (subscripts.count(",") + 1)
    plan = gett.plan(subscripts, *operands)
    assert plan.path == (tuple(range(len(operands))),)
    assert plan.path_info.path == list(plan.path)
    assert f"Complete contraction:  {subscripts}" in str(plan.path_info)


def test_a_path_is_told_in_the_subscripts_own_letters():
    operands = [np.ones((3, 3))] * 3
    assert gett.plan("zy,yx,xé->zé", *operands).path_info.eq == "zy,yx,xé->zé"
    mixed = [x for pair in zip(operands, (["1", "2"], ["2", 7], [7, "+"]), strict=True) for x in pair]
    assert gett.contract_path(*mixed)[1].eq.count(",") == 2


def test_bad_operands_of_paths_are_named():
    with pytest.raises(gett.ShapeError, match=r"operand 0 is \(2, 3\), a shape without a dtype"):
        gett.contract_path("ij,jk", (2, 3), (3, 4))
    with pytest.raises(gett.ShapeError, match=r"operand 1 is a ndarray; it must be a shape"):
        gett.contract_path("ij,jk", (2, 3), np.ones((3, 4)), shapes=True)
    with pytest.raises(gett.ShapeError, match="mode 'j' has extent 3 in operand 0 and 5 in operand 1"):
        gett.contract_path("ij,jk", (2, 3), (5, 4), shapes=True)
    with pytest.raises(gett.SubscriptsError):
        gett.einsum_path("ij,jk", np.ones(3), np.ones((3, 3)))
    with pytest.raises(gett.OptionError, match="optimize"):
        gett.einsum_path("ij,jk", np.ones((3, 3)), np.ones((3, 3)), optimize="zz")


def test_arrays_of_pytorch_have_paths():
    torch = pytest.importorskip("torch")
    operands = [torch.ones(3, 3, requires_grad=True)] * 3  # elements are not read, gradients do not matter
    assert len(gett.contract_path("ij,jk,kl", *operands)[0]) == 2


# --- limits


@pytest.mark.parametrize(
    "limit", [1, 100, "2400", "2400B", "1e3", "0.9KiB", "max_input", -1, None, np.inf, "1GiB", 0.5]
)
@pytest.mark.parametrize("call", [gett.einsum, gett.contract, gett.plan])
def test_memory_limits_that_can_be_kept(call, limit):
    a = np.ones((10, 10))
    call("ab,bc,cd,de->ae", a, a, a, a, memory_limit=limit)
    call("ab,bc->ac", a, a, memory_limit=limit)


@pytest.mark.parametrize("limit", [99, "799B", "0.5 KiB"])
def test_limits_of_paths_that_cannot(limit):
    a = np.ones((10, 10))
    with pytest.raises(gett.OptionError, match=r"memory_limit= limits intermediates to \d+ elements, but"):
        gett.contract_path("ab,bc,cd,de->ae", a, a, a, a, memory_limit=limit)
    with pytest.raises(gett.OptionError, match="limits intermediates"):
        gett.einsum("ab,bc,cd,de->ae", a, a, a, a, optimize=("greedy", limit))
    narrow = a.astype("f4")
    if isinstance(limit, str):  # half as many bytes
        assert gett.einsum("ab,bc,cd,de->ae", *[narrow] * 4, optimize=("greedy", limit)).shape == (10, 10)


def test_a_limit_of_numpy_s_own_dtypes_counts_their_bytes():
    a = np.ones((10, 10), "g")
    gett.einsum("ab,bc,cd->ad", a, a, a, memory_limit=f"{2 * a.nbytes}B")
    with pytest.raises(gett.OptionError, match="limits a call"):
        gett.einsum("ab,bc,cd->ad", a, a, a, memory_limit=f"{2 * a.nbytes - 1}B")


@pytest.mark.parametrize("limit", ["lots", "1 XB", "-1GiB", 0, -2, True, [5], "1e99"])
def test_limits_that_are_none(limit):
    a = np.ones((3, 3))
    with pytest.raises(gett.OptionError, match="memory_limit"):
        gett.einsum("ij,jk", a, a, memory_limit=limit)
    with pytest.raises(gett.OptionError, match="optimize"):
        gett.einsum("ij,jk", a, a, optimize=("greedy", limit))


def test_a_limit_is_given_once():
    a = np.ones((3, 3))
    with pytest.raises(gett.OptionError, match="limits intermediates already"):
        gett.einsum("ij,jk", a, a, optimize=("greedy", 100), memory_limit=100)
    with pytest.raises(gett.OptionError, match="autotune"):
        gett.einsum("ij,jk", a, a, optimize="autotune", memory_limit=100)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1GiB", 1 << 30),
        ("512MB", 512 << 20),
        ("2e9", 2 * 10**9),
        ("1.5k", 1536),
        (" 7 B ", 7),
        ("0", 0),
        ("3T", 3 << 40),
    ],
)
def test_sizes_are_read_alike_everywhere(text, size, monkeypatch):
    assert parse_size(text, "x") == size
    monkeypatch.setenv("GETT_CACHE_LIMIT", text)
    assert gett.env.read_environment().cache_limit == size
    pair = (64, 64), "f4"
    for limit in (text, size):
        plan = gett.plan("ij,jk->ik", pair, pair, arch="sm_90a", workspace_limit=limit)
        assert plan._request.workspace_limit == size
    a = np.ones((2, 2))
    np.testing.assert_array_equal(gett.einsum("ij,jk", a, a, workspace_limit=text), a @ a)
    np.testing.assert_array_equal(gett.contract("ij,jk", a, a, workspace_limit=text), a @ a)


@pytest.mark.parametrize("limit", ["lots", "1 XB", "-1", "", "99999999T"])
def test_sizes_that_are_none(limit):
    a = np.ones((2, 2))
    for call in (gett.einsum, gett.contract, gett.plan):
        with pytest.raises(gett.OptionError, match="workspace_limit"):
            call("ij,jk", a, a, workspace_limit=limit)


# --- paths of other shapes


@pytest.mark.parametrize("path", [((0, 1), 2), (2, (0, 1)), (((0, 1), 2), 3), [[[0, 1], [2, 3]]], ((0, (1, 2)), 3)])
def test_a_nested_path_is_an_error_that_says_so(path):
    for operands in ([np.ones((3, 3))] * 3, [np.ones((3, 3))] * 4):
        subscripts = ",".join(["ij", "jk", "kl", "lm"][: len(operands)])
        with pytest.raises(gett.PathError, match="nested path"):
            gett.einsum(subscripts, *operands, optimize=path)


def test_a_tree_of_cotengra_is_its_path():
    ctg = pytest.importorskip("cotengra")
    a, b, c, d = integers(4, 5), integers(5, 6), integers(6, 7), integers(7, 4)
    tree = ctg.array_contract_tree([("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")], (), dict(a=4, b=5, c=6, d=7))
    plan = gett.plan("ab,bc,cd,da->", a, b, c, d, optimize=tree)
    assert plan.path == tuple(map(tuple, tree.get_path()))
    for call in (gett.einsum, gett.contract):
        np.testing.assert_array_equal(call("ab,bc,cd,da->", a, b, c, d, optimize=tree), np.trace(a @ b @ c @ d))
    with pytest.raises(gett.OptionError, match="path step"):
        gett.einsum("ab,bc->ac", a, b, optimize=tree)


def test_an_optimiser_that_slices_is_run_with_its_slices_and_is_no_path():
    ctg = pytest.importorskip("cotengra")
    a, b, c = integers(3, 6), integers(6, 6), integers(6, 2)
    for kind in (ctg.HyperOptimizer, ctg.ReusableHyperOptimizer):
        slicing = kind(slicing_opts={"target_slices": 4}, parallel=False, max_repeats=2, progbar=False)
        for call in (gett.einsum, gett.contract):
            np.testing.assert_array_equal(call("ij,jk,kl->il", a, b, c, optimize=slicing), a @ b @ c)
            np.testing.assert_array_equal(call("ii,ij,jk->k", b, b, c, optimize=slicing), np.diag(b) @ b @ c)
        plan = gett.plan("ij,jk,kl->il", a, b, c, optimize=slicing)
        assert plan.slices > 1
        assert gett.plan("ij,jk,kl->il", a[:0], b, c, optimize=slicing).shape == (0, 2)
        assert gett.plan("ij->ji", a, optimize=slicing).slices == 1
        with pytest.raises(gett.PathError, match="searches slices while a path is asked for"):
            gett.contract_path("ij,jk,kl->il", a, b, c, optimize=slicing)
    whole = ctg.HyperOptimizer(max_repeats=2, parallel=False, progbar=False)
    assert gett.plan("ij,jk,kl->il", a, b, c, optimize=whole).slices == 1
    np.testing.assert_array_equal(gett.einsum("ij,jk,kl->il", a, b, c, optimize=whole), a @ b @ c)
