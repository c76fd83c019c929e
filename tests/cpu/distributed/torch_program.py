"""Programs of ranks over PyTorch, each with asserts of its own: torchrun torch_program.py CASE FOLDER."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import pytest
import torch
import torch.distributed as dist
from communicators import world
from problems import operands, plan, same_bits

import gett
from gett.slices.recipe import Worker

comm, rank, size = world()
last = rank == size - 1
arrays = operands(7)
made = plan(arrays)
with ThreadPoolExecutor(1) as pool:
    want = gett.distributed.contract(made, arrays, executor=pool, slices=64)


def contract(given: Any = arrays, **options: Any) -> Any:
    """The result over all ranks."""
    return gett.distributed.contract(made, given, **{"comm": comm, "slices": 64, "timeout": 60, **options})


def tensors() -> None:
    """Operands and results are PyTorch's, or arrays that may not be written."""
    given = [torch.from_numpy(x) for x in arrays]
    found = contract(given if rank == 0 else None)
    assert isinstance(found, torch.Tensor)
    assert same_bits(found.numpy(), want)
    out = torch.empty(24, 24, dtype=torch.float64)
    assert contract(given, out=out) is out
    assert same_bits(out.numpy(), want)
    low = [x.bfloat16() for x in given]
    one = gett.plan("ij,jk->ik", low[0][0], low[1][0])
    for pair in ((low[0][0], low[1][0]), (low[0][0], low[1][0]) if rank == 0 else None):
        found = gett.distributed.contract(one, pair, comm=comm, slices=4, timeout=60)
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found, low[0][0] @ low[1][0])
    for x in arrays:
        x.flags.writeable = False
    assert same_bits(contract(arrays if rank == 0 else None), want)


def large() -> None:
    """Operands that go in several messages, down two levels of ranks."""
    from gett.distributed import channel

    channel._PIECE = 3_000_000
    a = np.arange(1200.0 * 1200).reshape(1200, 1200) % 7
    for x, y in ((a, a), (a.T, a[::-1])):
        given, product = (x, y) if rank == 0 else None, gett.plan("ij,jk->ik", x, y)
        found = gett.distributed.contract(product, given, comm=comm, slices=8, timeout=60)
        assert np.array_equal(found, x @ y)


def wrong(message: str, given: Any = arrays, **options: Any) -> None:
    """A call that must fail, on this rank too."""
    with pytest.raises((gett.DistributedError, FloatingPointError), match=message):
        contract(given, **options)


def several() -> None:
    """Calls that go well, after and before such that do not, and messages of the program between them."""
    summed = Worker.sum
    assert same_bits(contract(), want)
    number = torch.full((1,), float(rank))
    dist.all_reduce(number)
    assert int(number) == size * (size - 1) // 2

    def fails(self: Any, *further: Any) -> Any:
        if last:
            raise FloatingPointError("slice went wrong")
        return summed(self, *further)

    for _ in range(3):
        Worker.sum = fails  # type: ignore[method-assign]
        wrong("slice went wrong")
        Worker.sum = summed  # type: ignore[method-assign]
        assert same_bits(contract(arrays if rank == 0 else None), want)
    other = [x + 1 if last else x for x in arrays]
    wrong(f"operand 0 and 1 and 2 of rank {size - 1} differs", other)
    if last:
        time.sleep(2.5)
    wrong("without a sign of rank", timeout=1)  # one comes late
    assert same_bits(contract(), want)

    def sleeps(self: Any, *further: Any) -> Any:
        if last:
            time.sleep(2.5)
        return summed(self, *further)

    Worker.sum = sleeps  # type: ignore[method-assign]
    wrong("without a sign of rank", timeout=1)
    Worker.sum = summed  # type: ignore[method-assign]
    assert same_bits(contract(arrays if rank == 0 else None), want)
    group = dist.new_group([size - 1, 1])
    if rank in (1, size - 1):
        assert same_bits(contract(arrays if dist.get_rank(group) == 0 else None, comm=group), want)
    assert same_bits(contract(), want)
    dist.destroy_process_group()
    # A rank that is early would meet the others' old store at the old port.
    where = Path(sys.argv[2], "again").as_uri()
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=size)
    assert same_bits(contract(comm=dist.group.WORLD), want)


{"tensors": tensors, "large": large, "several": several}[sys.argv[1]]()
dist.destroy_process_group()
Path(sys.argv[2], f"{rank}.txt").write_text("good")
