"""`gett.plan(..., remember=True)`: calls run the steps that a change touches, and each thread has its intermediates."""

from __future__ import annotations

import itertools
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from opt_einsum.testing import rand_equation

import gett
from gett.arrays import held
from gett.reuse import remembering_plan as module
from gett.reuse.remembering_plan import RememberingPlan
from tests.cpu.strategies import integers_of

integers = integers_of(np.random.default_rng(5))
LINE = "ab,bc,cd,de,ef->af"
LEFT = [(0, 1), (0, 3), (0, 2), (0, 1)]  # from left to right


def line() -> list[Any]:
    return [integers(3, 3) for _ in range(5)]


def value(operands: list[Any]) -> Any:
    return np.einsum(LINE, *operands, optimize=True)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The subscripts of the plans that ran."""
    found: list[str] = []
    real = module.ContractionPlan.__call__

    def call(self: Any, *arrays: Any, **options: Any) -> Any:
        found.append(self.subscripts)
        return real(self, *arrays, **options)

    monkeypatch.setattr(module.ContractionPlan, "__call__", call)
    return found


@pytest.mark.parametrize("seed", range(10))
def test_random_changes(seed):
    rng = np.random.default_rng(seed)
    spec, shapes = rand_equation(8, 3, n_out=2, d_min=2, d_max=4, seed=seed)
    dtypes = ["float64", "float32", "complex128"]
    operands = [rng.integers(-1, 2, s).astype(rng.choice(dtypes)) for s in shapes]
    plan = gett.plan(spec, *operands, remember=True)
    want = np.einsum(spec, *operands, optimize=True)
    np.testing.assert_array_equal(plan(*operands), want)
    for _ in range(6):
        changed = [int(i) for i in rng.choice(8, rng.integers(0, 4), replace=False)]
        for i in changed:
            new = rng.integers(-1, 2, shapes[i]).astype(operands[i].dtype)
            if rng.integers(2):
                operands[i] = new
            else:
                operands[i][...] = new
        np.testing.assert_array_equal(plan(*operands, changed=changed), np.einsum(spec, *operands, optimize=True))


def test_steps_that_do_not_depend_on_a_change_do_not_run(ran):
    operands = line()
    plan = gett.plan(LINE, *operands, remember=True, optimize=LEFT)
    assert (plan.held_steps, len(plan.steps)) == (3, 4)
    plan(*operands)
    assert len(ran) == 4
    for changed, count in (([], 1), ([4], 1), ([3], 2), ([0], 4), ([2, 4], 3), ([3, 3], 2)):
        for i in changed:
            operands[i] = integers(3, 3)
        ran.clear()
        np.testing.assert_array_equal(plan(*operands, changed=changed), value(operands))
        assert len(ran) == count, changed


def test_the_last_step_has_all_that_a_call_has():
    operands, c = line(), integers(3, 3)
    plan = gett.plan(LINE, *operands, remember=True)
    want = value(operands)
    np.testing.assert_array_equal(plan(*operands, c=c, alpha=2, beta=-1), 2 * want - c)
    out = np.ones((3, 3))
    assert plan(*operands, changed=[], out=out, beta=2) is out
    np.testing.assert_array_equal(out, want + 2)
    plan = gett.plan(LINE, *operands, remember=True, epilogue=lambda d, x: d * x, epilogue_args=(c,))
    np.testing.assert_array_equal(plan(*operands, epilogue_args=(c,)), want * c)
    np.testing.assert_array_equal(plan(*operands, changed=[], epilogue_args=(2 * c,)), 2 * want * c)


@pytest.mark.parametrize("spec", ["ab->ba", "ab,bc->ac", "aab,bc->c", "ab,bc,cd->"])
def test_few_operands(spec):
    shapes = [[4] * len(x) for x in spec.split("->")[0].split(",")]
    operands = [integers(*s) for s in shapes]
    plan = gett.plan(spec, *operands, remember=True)
    np.testing.assert_array_equal(plan(*operands), np.einsum(spec, *operands))
    operands[0] = integers(*shapes[0])
    np.testing.assert_array_equal(plan(*operands, changed=[0]), np.einsum(spec, *operands))
    empty = gett.plan("ab,bc,cd->ad", *[((3, 3), "float64"), ((3, 0), "float64"), ((0, 3), "float64")], remember=True)
    given = [np.ones((3, 3)), np.ones((3, 0)), np.ones((0, 3))]
    np.testing.assert_array_equal(empty(*given), np.zeros((3, 3)))
    np.testing.assert_array_equal(empty(*given, changed=[1]), np.zeros((3, 3)))


def test_a_change_that_is_not_named_is_an_error():
    operands = line()
    plan = gett.plan(LINE, *operands, remember=True)
    with pytest.raises(gett.OptionError, match="this thread has kept nothing of the plan yet"):
        plan(*operands, changed=[1])
    plan(*operands)
    np.testing.assert_array_equal(plan(*[x[:] for x in operands], changed=[]), value(operands))  # views of the same
    operands[2] = operands[2].copy()
    with pytest.raises(gett.OptionError, match="operand 2 is another array than in the call before"):
        plan(*operands, changed=[1])
    np.testing.assert_array_equal(plan(*operands, changed=[1, 2]), value(operands))


class Versioned(np.ndarray[Any, Any]):
    """An array that counts writes as PyTorch's tensors do."""

    _version = 0


def test_a_version_that_changed_is_seen():
    operands = [np.asarray(x).view(Versioned) for x in line()]
    plan = gett.plan(LINE, *map(np.asarray, operands), remember=True)
    plan(*operands)
    operands[3]._version = 1
    with pytest.raises(gett.OptionError, match="operand 3 was written to since the call before"):
        plan(*operands, changed=[0])
    plan(*operands, changed=[3])
    plan(*operands, changed=[])


def test_operands_that_do_not_fit_are_named_by_their_own_number():
    operands = line()
    plan = gett.plan(LINE, *operands, remember=True)
    plan(*operands)
    for i, x, text in (
        (3, integers(3, 4), r"operand 3 has shape \(3, 4\)"),
        (4, integers(3, 3).T, "operand 4 has strides"),
        (1, integers(3, 3).astype("float32"), "operand 1 has dtype float32"),
    ):
        error = gett.DTypeError if "dtype" in text else gett.ShapeError
        with pytest.raises(error, match=text):
            plan(*operands[:i], x, *operands[i + 1 :], changed=[i])
    np.testing.assert_array_equal(plan(*operands, changed=[]), value(operands))  # nothing was lost
    with pytest.raises(gett.ShapeError, match="takes 5 operands, 4 were given"):
        plan(*operands[:4])
    with pytest.raises(gett.OptionError, match=r"changed=.*9 is no place of 5 operands"):
        plan(*operands, changed=[9])
    with pytest.raises(gett.OptionError, match=r"gett.plan\(remember=True\)"):
        gett.plan(LINE, *operands)(*operands, changed=[0])


def test_what_broke_off_has_to_be_computed_again(monkeypatch):
    operands = line()
    plan = gett.plan(LINE, *operands, remember=True)
    plan(*operands)
    real = module.ContractionPlan.__call__

    def stopped(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(module.ContractionPlan, "__call__", stopped)
    with pytest.raises(KeyboardInterrupt):
        plan(*operands, changed=[0])
    monkeypatch.setattr(module.ContractionPlan, "__call__", real)
    with pytest.raises(gett.OptionError, match="kept nothing"):
        plan(*operands, changed=[0])
    np.testing.assert_array_equal(plan(*operands), value(operands))


def test_threads_keep_intermediates_of_their_own():
    plan = gett.plan(LINE, *line(), remember=True)
    barrier, wrong = threading.Barrier(4), []

    def call(seed: int) -> None:
        own = integers_of(np.random.default_rng(seed))
        operands = [own(3, 3) for _ in range(5)]
        plan(*operands)
        for n in range(20):
            barrier.wait()
            operands[n % 5] = own(3, 3)
            found = plan(*operands, changed=[n % 5])
            if not np.array_equal(found, value(operands)):
                wrong.append((seed, n))

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    plan.forget()


def test_what_is_kept_is_told_and_given_back():
    operands = line()
    plan = gett.plan(LINE, *operands, remember=True)
    assert plan.held_bytes == 3 * 9 * 8
    assert plan.peak_bytes >= 4 * 9 * 8
    assert "results of 3 steps are held between calls, 216 B" in plan.explain()
    assert "held between calls" in plan.explain(detail=True)
    plan(*operands)
    (state,) = plan._all
    assert len(state.kept) == 3
    plan.forget()
    assert not state.kept
    assert state.operands is None
    with pytest.raises(gett.OptionError, match="kept nothing"):
        plan(*operands, changed=[0])
    made = pickle.loads(pickle.dumps(plan))
    assert isinstance(made, RememberingPlan)
    np.testing.assert_array_equal(made(*operands), value(operands))
    assert repr(plan) == "<RememberingPlan ab,bc,cd,de,ef->af on cpu, 4 steps>"


def test_memory_of_a_plan_goes_with_it():
    import weakref

    operands = line()
    plan = gett.plan(LINE, *operands, remember=True)
    plan(*operands)
    (state,) = plan._all
    kept = weakref.ref(next(iter(state.kept.values())))
    del plan, state
    assert kept() is None


def test_limits_of_memory():
    operands = line()
    plan = gett.plan(LINE, *operands, remember=True)
    same = gett.plan(LINE, *operands, remember=True, memory_limit=f"{plan.peak_bytes}B")
    np.testing.assert_array_equal(same(*operands), value(operands))
    with pytest.raises(gett.OptionError, match="with remember=True it holds"):
        gett.plan(LINE, *operands, remember=True, memory_limit=f"{plan.peak_bytes - 1}B")
    gett.plan(LINE, *operands, remember=True, memory_limit=9)
    with pytest.raises(gett.OptionError, match="with remember=True one has 9"):
        gett.plan(LINE, *operands, remember=True, memory_limit=8)


def test_calls_on_another_stream_wait_for_the_last(monkeypatch):
    operands = line()
    plan = gett.plan(LINE, *operands, remember=True)
    followed: list[Any] = []
    marks = itertools.count(1)
    monkeypatch.setattr(module, "mark", lambda x: (next(marks), None))
    monkeypatch.setattr(module, "follow", lambda marked, x: followed.append(marked))
    plan(*operands)
    plan(*operands, changed=[1])
    assert followed == [None, (1, None)]
    monkeypatch.setattr(held, "is_recorded", lambda x: True)
    with pytest.raises(gett.OptionError, match="intermediates cannot be kept while a CUDA graph is recorded"):
        plan(*operands, changed=[1])


def test_steps_do_not_push_other_plans_out_of_the_cache():
    before = gett.plan_cache.info().size
    spec = ",".join(chr(97 + i) + chr(98 + i) for i in range(12)) + "->am"
    plan = gett.plan(spec, *[((7, 7), "float64")] * 12, remember=True)
    assert len(plan.steps) == 11
    assert gett.plan_cache.info().size <= before + 1
