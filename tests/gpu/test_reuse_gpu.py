"""What a plan holds between calls on a GPU: exact on every stream, in threads, in captures and as CUDA graphs."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import numpy as np
import opt_einsum
import pytest

import gett

SPEC = "ab,bcd,cef,deg,fgh,hi,ij->aj"
EXTENTS = dict(zip("abcdefghij", (37, 24, 16, 18, 20, 12, 14, 32, 21, 30), strict=True))
CONSTANTS = [0, 1, 2]


def operands(xp: Any, dtype: str, seed: int) -> tuple[list[Any], list[Any]]:
    """On the GPU and on the host."""
    rng = np.random.default_rng(seed)
    shapes = [[EXTENTS[x] for x in term] for term in SPEC.split("->")[0].split(",")]
    host = [rng.integers(-1, 2, s).astype(dtype) for s in shapes]
    return [xp.asarray(x) for x in host], host


def value(host: list[Any]) -> Any:
    wide = "complex128" if host[0].dtype.kind == "c" else "float64"
    return opt_einsum.contract(SPEC, *(x.astype(wide) for x in host))  # np.einsum takes minutes


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_constants(cupy: Any, dtype: str) -> None:
    given, host = operands(cupy, dtype, 0)
    plans = [gett.plan(SPEC, *given, constants=CONSTANTS)]
    plans.append(gett.plan(SPEC, *host[:3], *given[3:], constants=CONSTANTS))  # NumPy's are brought to the GPU
    plans.append(pickle.loads(pickle.dumps(plans[0])))
    plans.append(gett.plan(SPEC, *given, constants=CONSTANTS, optimize=False))
    for plan in plans:
        for seed in range(1, 5):
            own, changed = operands(cupy, dtype, seed)
            want = value([*host[:3], *changed[3:]])
            np.testing.assert_array_equal(plan(*own[3:]).get(), want)
            out = cupy.full(want.shape, 3, dtype)
            plan(*own[3:], out=out, alpha=2, beta=1)
            np.testing.assert_array_equal(out.get(), 2 * want + 3)


def test_constants_on_other_streams_and_in_a_capture(cupy: Any) -> None:
    given, host = operands(cupy, "float32", 0)
    plan = gett.plan(SPEC, *given, constants=CONSTANTS, optimize=False)
    assert plan.held_steps == 2
    want, out = value(host), cupy.empty((37, 30), "float32")
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        with pytest.raises(gett.OptionError, match="while a CUDA graph is recorded"):
            plan(*given[3:], out=out)
        stream.end_capture()
        first = plan(*given[3:])
    other = cupy.cuda.Stream(non_blocking=True)
    with other:
        for _ in range(3):
            second = plan(*given[3:])
        plan(*given[3:], out=out)
        other.begin_capture()
        plan(*given[3:], out=out)
        graph = other.end_capture()
        out[...] = 0
        graph.launch(other)
    cupy.cuda.Device().synchronize()
    for found in (first, second, out):
        np.testing.assert_array_equal(found.get(), want)
    plan.forget()
    np.testing.assert_array_equal(plan(*given[3:]).get(), want)


def test_slices_of_what_is_held(cupy: Any) -> None:
    given, host = operands(cupy, "complex64", 4)
    whole = gett.plan(SPEC, *given, constants=CONSTANTS, optimize="greedy")
    room = whole.peak_bytes - whole.held_bytes
    plan = gett.plan(
        SPEC, *given, constants=CONSTANTS, optimize="greedy", memory_limit=f"{whole.held_bytes + room * 2 // 3}B"
    )
    for _ in range(3):
        np.testing.assert_array_equal(plan(*given[3:]).get(), value(host))


def test_changes(cupy: Any) -> None:
    given, host = operands(cupy, "float64", 0)
    plan = gett.plan(SPEC, *given, remember=True)
    np.testing.assert_array_equal(plan(*given).get(), value(host))
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    rng = np.random.default_rng(1)
    for n in range(20):
        changed = [int(i) for i in rng.choice(7, rng.integers(0, 3), replace=False)]
        for i in changed:
            host[i] = rng.integers(-1, 2, host[i].shape).astype("float64")
            if rng.integers(2):
                given[i] = cupy.asarray(host[i])
            else:
                given[i][...] = cupy.asarray(host[i])
        cupy.cuda.Device().synchronize()
        with streams[n % 2]:
            found = plan(*given, changed=changed)
            np.testing.assert_array_equal(found.get(), value(host))
    given[2] = given[2].copy()
    with pytest.raises(gett.OptionError, match="operand 2 is another array"):
        plan(*given, changed=[])
    plan.forget()
    with pytest.raises(gett.OptionError, match="kept nothing"):
        plan(*given, changed=[2])


def test_threads(cupy: Any) -> None:
    given, host = operands(cupy, "float32", 0)
    held, kept = gett.plan(SPEC, *given, constants=CONSTANTS), gett.plan(SPEC, *given, remember=True)
    wrong: list[int] = []

    def work(seed: int) -> None:
        with cupy.cuda.Stream(non_blocking=True):
            mine, own = operands(cupy, "float32", seed)
            right, mixed = value(own), value([*host[:3], *own[3:]])
            wrong.extend(seed for _ in range(10) if not np.array_equal(held(*mine[3:]).get(), mixed))
            wrong.extend([seed] * (not np.array_equal(kept(*mine).get(), right)))
            wrong.extend(seed for i in range(7) if not np.array_equal(kept(*mine, changed=[i]).get(), right))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_tensors_of_pytorch(cupy: Any) -> None:
    torch = pytest.importorskip("torch")
    _, host = operands(cupy, "float32", 0)
    tensors = [torch.as_tensor(x, device="cuda") for x in host]
    plan = gett.plan(SPEC, *host[:3], *tensors[3:], constants=CONSTANTS)
    kept = gett.plan(SPEC, *tensors, remember=True)
    kept(*tensors)
    side = torch.cuda.Stream()
    for n in range(4):
        np.testing.assert_array_equal(plan(*tensors[3:]).cpu().numpy(), value(host))
        torch.cuda.synchronize()
        with torch.cuda.stream(side if n % 2 else torch.cuda.current_stream()):
            tensors[4] += 1
            host[4] = host[4] + 1
            with pytest.raises(gett.OptionError, match="operand 4 was written to"):
                kept(*tensors, changed=[])
            found = kept(*tensors, changed=[4]).cpu().numpy()
        np.testing.assert_array_equal(found, value(host))
    last = tensors[6].clone().requires_grad_()
    plan(*tensors[3:6], last).sum().backward()
    want = np.einsum(SPEC.rsplit(",", 1)[0] + "->ai", *host[:6], optimize=True).sum(0)
    np.testing.assert_array_equal(last.grad.cpu().numpy(), np.broadcast_to(want[:, None], last.shape))
