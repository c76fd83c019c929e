"""Sums of slices by the workers of any `concurrent.futures` executor, or of a Dask client.

Owns what a task carries and answers, what stays in a worker between tasks, and what happens when one fails.
"""

from __future__ import annotations

import pickle
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gett.arrays.kinds import CPU, ArrayKind
from gett.console.formatting import count
from gett.distributed.places import device_for, local_number, name
from gett.distributed.reports import Report
from gett.distributed.saved import Saved
from gett.errors import DistributedError, GettError, OptionError
from gett.slices.distributed_plan import Engine, Job, Totals
from gett.slices.recipe import Recipe, Worker
from gett.slices.sums import Node

MOST_KEPT = 2  # contractions whose operands a worker keeps


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker answers.

    Attributes:
        worker: Its name.
        digest: Of its plans; None if it has no operands yet, so that it computed nothing.
        value: The sum of the node's slices, an array of the host.
    """

    worker: str
    digest: str | None = None
    value: Any = None


@dataclass(frozen=True, slots=True)
class _Given:
    """What a worker needs beside its tasks."""

    recipe: Recipe
    operands: Sequence[Any]
    devices: Sequence[int] | None


def over_executor(
    executor: Any, *, timeout: float | None, saved: Saved | None, report: Report, devices: Sequence[int] | None
) -> Engine:
    """The engine of an executor.

    Args:
        executor: A `concurrent.futures.Executor`, or a Dask client.
        timeout: Seconds without a finished task after which it is given up, None for none.
        saved: Where finished sums are kept.
        report: Is told of what is done.
        devices: GPUs to choose from.

    Raises:
        OptionError: It is no executor.
    """
    client = executor if callable(getattr(executor, "get_executor", None)) else None
    pool = executor if client is None else client.get_executor(pure=False)
    if not callable(getattr(pool, "submit", None)):
        raise OptionError(f"executor={executor!r} has no submit(): it must be an executor or a Dask client")

    def run(job: Job, kind: ArrayKind, given: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        operands = list(map(kind.to_host, given))
        totals = Totals(job)
        done = {} if saved is None else saved.begin(job, operands)
        report.begin(job, done)
        key = uuid.uuid4().hex
        payload: Any = _Given(job.recipe, operands, devices)
        if not isinstance(pool, ThreadPoolExecutor):  # once, not for each worker
            payload = pickle.dumps(payload, protocol=5)
        if client is not None:
            payload = client.scatter(payload, broadcast=True, hash=False)
        for node, value in done.items():
            if found := totals.put(node, value()):
                yield found
        workers = count_workers(executor)
        digests: dict[str, str] = {}
        waiting: dict[Future[Answer], Node] = {}
        try:
            with _told():
                for i, node in enumerate(job.tasks(workers, done)):
                    sent = payload if client is not None or i < workers else None
                    waiting[pool.submit(run_task, key, sent, node)] = node
                while waiting:
                    ready = wait(waiting, timeout, FIRST_COMPLETED).done
                    if not ready:
                        raise DistributedError(
                            f"no task was finished within {timeout:g} s; {count(len(waiting), 'task')} were not; "
                            "timeout= says how long to wait"
                        )
                    for future in sorted(ready, key=_failed):  # what is done is kept before a failure is told
                        node = waiting.pop(future)
                        answer = future.result()
                        if answer.digest is None:
                            waiting[pool.submit(run_task, key, payload, node)] = node
                            continue
                        agree(digests, answer.worker, answer.digest)
                        if saved is not None:
                            saved.put(node, answer.value)
                        report.step(answer.worker, job.slices(node))
                        if total := totals.put(node, answer.value):
                            yield total
        finally:
            for future in waiting:
                future.cancel()
            forget(key)
            report.end()
        if saved is not None:
            saved.end()

    return run


def _failed(future: Future[Answer]) -> bool:
    return future.cancelled() or future.exception() is not None


@contextmanager
def _told() -> Iterator[None]:
    """Errors of workers as errors of this package, which name what happened."""
    try:
        yield
    except GettError:
        raise
    except BrokenExecutor as error:
        raise DistributedError(f"the executor lost a worker: {error}") from error
    except CancelledError as error:
        raise DistributedError("a task was cancelled, as executors do that shut down or lose a worker") from error
    except Exception as error:
        raise DistributedError(f"a worker failed: {type(error).__name__}: {error}") from error


def agree(digests: dict[str, str], worker: str, digest: str) -> None:
    """Compare the digest of a worker's plans with those of the others.

    Raises:
        DistributedError: It differs.
    """
    digests[worker] = digest
    first = next(iter(digests))
    if digests[first] != digest:
        raise DistributedError(
            f"{first} and {worker} plan the contraction in different ways, so their sums may not be added: they need "
            "the same gett, and GPUs of one kind"
        )


def count_workers(executor: Any) -> int:
    """How many workers an executor has, as far as it tells; else 1."""
    cores = getattr(executor, "ncores", None)  # of a Dask client
    if callable(cores):
        return max(1, sum(map(int, cores().values())))
    for attribute in ("_max_workers", "num_workers"):
        found = getattr(executor, attribute, None)
        if isinstance(found, int) and found > 0:
            return found
    return 1


# What this process keeps, as a worker, of contractions whose tasks it ran last.
_kept: OrderedDict[str, tuple[Worker, int]] = OrderedDict()
_lock = threading.Lock()


def run_task(key: str, payload: Any, node: Node) -> Answer:
    """A task: sum the slices of a node.

    Args:
        key: Of the contraction.
        payload: `_Given`, or that pickled; None where the worker may have it.
        node: What to sum.
    """
    with _lock:
        found = _kept.get(key)
        if found is None and payload is None:
            return Answer(name(CPU))
        if found is None:
            given: _Given = pickle.loads(payload) if isinstance(payload, bytes) else payload
            device = device_for(given.recipe.bare.arch, local_number(), given.devices)
            worker = Worker(given.recipe, device)
            worker.read(given.operands)
            found = _kept[key] = worker, device
            while len(_kept) > MOST_KEPT:
                _kept.popitem(last=False)
        _kept.move_to_end(key)
    worker, device = found
    return Answer(name(device), worker.digest, worker.to_host(worker.sum(node)))


def forget(key: str) -> None:
    """Drop what this process keeps of a contraction."""
    with _lock:
        _kept.pop(key, None)
