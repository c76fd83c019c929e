"""Sums of slices by the ranks of a communicator or a process group: rank 0 plans and gives out, the others follow.

Owns what ranks tell each other and in which order. How messages travel is `gett.distributed.channel`'s.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gett.arrays.interop import gather
from gett.arrays.kinds import ArrayKind
from gett.arrays.torch import torch_library
from gett.distributed.channel import Channel
from gett.distributed.executors import agree
from gett.distributed.places import device_for, local_number, name
from gett.distributed.reports import Report
from gett.distributed.saved import Saved, digest_of
from gett.errors import DistributedError
from gett.slices.distributed_plan import Engine, Job, Totals
from gett.slices.recipe import Worker, added
from gett.slices.sums import Node, SumTree


@dataclass(frozen=True, slots=True)
class _Start:
    """What rank 0 gives another rank first: its tasks, and where finished sums are kept."""

    job: Job
    tasks: list[Node]
    saved: Saved | None
    devices: Sequence[int] | None


@dataclass(frozen=True, slots=True)
class _Hello:
    """What a rank answers: its name, the digest of its plans, and those of its operands if it was given any."""

    worker: str
    digest: str
    operands: list[str] | None


@dataclass(frozen=True, slots=True)
class _Sum:
    """A sum follows, as an array; without a node only that some slices are done."""

    worker: str
    slices: int
    node: Node | None = None


@dataclass(frozen=True, slots=True)
class _Result:
    """The result follows, as an array; if rank 0 has a tensor of PyTorch, the name of that one's dtype."""

    tensor: str | None


def over_ranks(channel: Channel, *, saved: Saved | None, report: Report, devices: Sequence[int] | None) -> Engine:
    """The engine of rank 0.

    Args:
        channel: To the other ranks.
        saved: Where finished sums are kept.
        report: Is told of what is done.
        devices: GPUs to choose from.
    """

    def run(job: Job, kind: ArrayKind, given: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        operands = list(map(kind.to_host, given))
        totals = Totals(job)
        done = {} if saved is None else saved.begin(job, operands)
        tasks = job.shares(job.tasks(channel.size, done), channel.size)
        for rank in channel.others:
            channel.send(_Start(job, tasks[rank], saved, devices), rank)
        worker, own = _worker(job, devices)
        _compare(channel, worker, own, operands)
        worker.read(operands)
        report.begin(job, done)
        left = {r for r in channel.others if tasks[r]}
        complete: list[tuple[int, Any]] = []

        def put(node: Node, value: Any) -> None:
            if total := totals.put(node, value):
                complete.append(total)

        def take(rank: int) -> None:
            news = channel.receive(rank)
            if news is None:
                left.remove(rank)
            elif news.node is None:
                report.step(news.worker, news.slices)
            else:
                put(news.node, channel.receive_array(rank))

        def look() -> None:
            channel.alive()
            while left and channel.has_news():
                take(channel.sender(left))

        try:
            for node, value in done.items():
                put(node, value())
            for node in tasks[0]:
                found = worker.to_host(worker.sum(node, look))
                if saved is not None:
                    saved.put(node, found)
                report.step(own, job.slices(node))
                put(node, found)
                while complete:
                    yield complete.pop(0)
            while left or complete:
                if left:
                    take(channel.sender(left))
                while complete:
                    yield complete.pop(0)
        finally:
            report.end()
        if saved is not None:
            saved.end()

    return run


def _worker(job: Job, devices: Sequence[int] | None) -> tuple[Worker, str]:
    device = device_for(job.recipe.bare.arch, local_number(), devices)
    return Worker(job.recipe, device), name(device)


def _compare(channel: Channel, worker: Worker, own: str, operands: Sequence[Any]) -> None:
    """Compare plans and operands of all ranks with those of rank 0, and give operands to ranks that have none."""
    hellos: dict[int, _Hello] = {rank: channel.receive(rank) for rank in channel.others}
    digests = {f"rank 0 ({own})": worker.digest}
    for rank, hello in hellos.items():
        agree(digests, f"rank {rank} ({hello.worker})", hello.digest)
    if any(hello.operands is not None for hello in hellos.values()):
        mine = [digest_of([x]) for x in operands]
        for rank, hello in hellos.items():
            theirs = mine if hello.operands is None else hello.operands
            if len(theirs) != len(mine):
                raise DistributedError(f"rank {rank} gives {len(theirs)} operands, rank 0 gives {len(mine)}")
            different = [str(i) for i, (x, y) in enumerate(zip(mine, theirs, strict=True)) if x != y]
            if different:
                raise DistributedError(
                    f"operand {' and '.join(different)} of rank {rank} differs from rank 0's; ranks that give "
                    "arrays=None get those of rank 0"
                )
    needed = any(hello.operands is None for hello in hellos.values())
    for rank in channel.others:
        channel.send(needed, rank)
    if needed and channel.others:
        channel.broadcast(list(operands))


def follow(channel: Channel, arrays: Sequence[Any] | None) -> Worker:
    """What other ranks than 0 do: sum slices for it, by the worker that is given back."""
    start: _Start = channel.receive(0)
    job = start.job
    worker, own = _worker(job, start.devices)
    operands = None
    if arrays is not None:
        operands = [_on_host(x, f"operand {i}") for i, x in enumerate(arrays)]
    channel.send(_Hello(own, worker.digest, None if operands is None else [digest_of([x]) for x in operands]), 0)
    if channel.receive(0):
        operands = channel.broadcast(None)
    assert operands is not None
    worker.read(operands)
    for part, tasks in itertools.groupby(start.tasks, key=lambda node: node.part):
        tree = SumTree(job.terms, added)
        for node in tasks:
            value = worker.to_host(worker.sum(node, channel.alive))
            if start.saved is not None:
                start.saved.put(node, value)
            tree.put(node.level, node.index, value)
            channel.send(_Sum(own, job.slices(node)), 0)
        for (level, index), held in tree.held.items():
            channel.send(_Sum(own, 0, Node(part, level, index)), 0)
            channel.send_array(held, 0)
    if start.tasks:
        channel.send(None, 0)
    return worker


def _on_host(array: Any, name: str) -> Any:
    """An array of any library as it travels."""
    torch = torch_library()
    if torch is not None and isinstance(array, torch.tensor):
        # bfloat16 of the CPU is computed in float32, and NumPy has no type for it.
        return torch.to_host(array.float() if array.dtype == torch.module.bfloat16 and not array.is_cuda else array)
    kind, _, (found,) = gather([array], [name])
    return kind.to_host(found)


def _tensor_type(array: Any) -> str | None:
    torch = torch_library()
    return str(array.dtype).removeprefix("torch.") if torch is not None and isinstance(array, torch.tensor) else None


def share_result(channel: Channel, result: Any, root: int | None) -> None:
    """Give the result of rank 0 to the ranks that get one."""
    wanted = [r for r in channel.others if root is None or r == root]
    if wanted:
        host, tensor = _on_host(result, "the result"), _tensor_type(result)
    for rank in channel.others:
        channel.send(_Result(tensor) if rank in wanted else None, rank)
        if rank in wanted:
            channel.send_array(host, rank)


def take_result(channel: Channel, worker: Worker, out: Any) -> Any:
    """What another rank than 0 gets in the end: the result, or None."""
    result: _Result | None = channel.receive(0)
    if result is None:
        return None
    found = worker.from_host(channel.receive_array(0))
    if result.tensor is not None and isinstance(found, np.ndarray) and not isinstance(out, np.ndarray):
        import torch

        found = torch.from_numpy(found).to(getattr(torch, result.tensor))
    if out is None:
        return found[()] if found.ndim == 0 and isinstance(found, np.ndarray) else found
    out[...] = found
    return out
