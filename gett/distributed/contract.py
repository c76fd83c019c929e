"""The public function `contract` of `gett.distributed`.

Owns its arguments. How slices are summed is the engines'.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from gett.api.plan import plan
from gett.distributed.executors import count_workers, over_executor
from gett.distributed.reports import Report
from gett.distributed.saved import Saved
from gett.distributed.torch_group import TorchTransport, is_group
from gett.distributed.transport import Transport
from gett.errors import OptionError
from gett.plans.contraction_plan import ContractionPlan
from gett.reuse.constant_plan import ConstantPlan
from gett.reuse.remembering_plan import RememberingPlan
from gett.slices.distributed_plan import Engine, distribute


def contract(
    contraction: Any,
    arrays: Sequence[Any] | None,
    /,
    *,
    executor: Any = None,
    comm: Any = None,
    root: int | None = None,
    slices: int | None = None,
    devices: Sequence[int] | None = None,
    timeout: float | None = 600.0,
    resume: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    report: Report | None = None,
    **options: Any,
) -> Any:
    """Compute a contraction slice by slice, over the workers of an executor or the ranks of MPI or PyTorch.

    A sliced contraction is a sum of smaller ones. Each worker gets the plan and the operands once, keeps the results of
    steps that all slices share, and sums slices. Partial sums are added in an order that depends on the slices alone:
    the bits of the result are the same for any number of workers.

    Args:
        contraction: A plan of `gett.plan`, often with `memory_limit=`, or a `ContractionTree` of cotengra with its
            slices. With `comm` that of rank 0 counts; other ranks may give None.
        arrays: The operands. With `comm` other ranks than 0 may give None: they get those of rank 0. Ranks that give
            arrays must all give the same.
        executor: A `concurrent.futures` executor (of processes, threads, loky, mpi4py.futures) or a Dask client.
        comm: An mpi4py communicator, or a process group of `torch.distributed` with gloo for the CPU, such as
            `torch.distributed.group.WORLD`; all its ranks call this function.
        root: The rank that gets the result, others get None. By default all get it. With `comm` only.
        slices: The least number of slices. By default a plan without slices is cut in at least as many as there are
            workers; then the number of workers decides about bits too.
        devices: GPUs of each host that its processes share out. By default all. For plans of GPUs only.
        timeout: Seconds without a sign of another worker after which the contraction is given up; None for never.
        resume: A folder for finished sums. A run that was ended goes on there when it is called again with the same
            contraction and operands; the folder goes when the result is there. Ranks must share it.
        progress: Whether there is a bar with slices, rate and time left; by default on a terminal.
        report: Is told which worker did how many slices.
        options: `c`, `out`, `alpha`, `beta` and `epilogue_args`, as calls of a plan take them. With `comm` those of
            rank 0 count; other ranks that get the result may have an `out` too.

    Returns:
        The result, an array of the operands' kind; on ranks that it is not for, None.

    Raises:
        OptionError: Neither or both of `executor` and `comm` are given, or an option does not fit.
        DistributedError: A worker failed or was lost, workers disagree, or `timeout` has passed. Other workers stop.
        GettError: As a call of the plan.

    Example:
        >>> import gett, numpy as np
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> a, b = np.ones((4, 8)), np.ones((8, 4))
        >>> plan = gett.plan("ij,jk->ik", a, b)
        >>> with ThreadPoolExecutor(2) as pool:
        ...     gett.distributed.contract(plan, (a, b), executor=pool, slices=4).sum()
        np.float64(128.0)
    """
    if (executor is None) is (comm is None):
        raise OptionError("give executor= or comm=, one of them")
    if root is not None and comm is None:
        raise OptionError(f"root={root!r} is a rank of comm=, which is not given")
    if slices is not None and (isinstance(slices, bool) or not isinstance(slices, int) or slices < 1):
        raise OptionError(f"slices={slices!r}; it must be a number of at least 1")
    if timeout is not None and not timeout > 0:
        raise OptionError(f"timeout={timeout!r}; it must be a number of seconds, or None")
    saved = None if resume is None else Saved(resume)
    report = Report(progress) if report is None else report

    def compute(engine: Engine, workers: int) -> Any:
        assert arrays is not None
        return distribute(plan_of(contraction, arrays), engine, slices or workers)(*arrays, **options)

    if comm is None:
        if arrays is None:
            raise OptionError("arrays is None, which only ranks other than 0 of a comm= may give")
        engine = over_executor(executor, timeout=timeout, saved=saved, report=report, devices=devices)
        return compute(engine, count_workers(executor))
    from gett.distributed.channel import Channel
    from gett.distributed.ranks import follow, over_ranks, share_result, take_result

    with Channel(transport_of(comm), timeout) as channel:
        if root is not None and not 0 <= root < channel.size:
            raise OptionError(f"root={root!r}; the communicator has ranks 0 to {channel.size - 1}")
        if channel.rank:
            return take_result(channel, follow(channel, arrays), options.get("out"))
        if arrays is None:
            raise OptionError("arrays is None on rank 0, which gives the operands")
        result = compute(over_ranks(channel, saved=saved, report=report, devices=devices), channel.size)
        share_result(channel, result, root)
        return result if root in (None, 0) else None


def transport_of(comm: Any) -> Transport:
    """How messages travel between the ranks of a communicator or a process group.

    Raises:
        OptionError: It is neither, or none that can be used.
    """
    if callable(getattr(comm, "Idup", None)):
        from gett.distributed.mpi import MpiTransport

        return MpiTransport(comm)
    if is_group(comm):
        return TorchTransport(comm)
    raise OptionError(f"comm={comm!r} is no communicator of mpi4py and no process group of torch.distributed")


def plan_of(contraction: Any, arrays: Sequence[Any]) -> ContractionPlan:
    """The plan that is meant: a plan, or that of cotengra's tree.

    Raises:
        OptionError: It is neither.
    """
    if isinstance(contraction, ContractionPlan):
        if isinstance(contraction, (ConstantPlan, RememberingPlan)):
            held = "constants" if isinstance(contraction, ConstantPlan) else "intermediates"
            raise OptionError(f"the plan holds {held}, which do not travel: plan without constants= and remember=")
        return contraction
    if callable(getattr(contraction, "get_eq", None)) and hasattr(contraction, "sliced_inds"):
        return plan(contraction.get_eq(), *arrays, optimize=contraction)
    raise OptionError(
        f"{type(contraction).__name__} is no contraction: give a plan of gett.plan, or a ContractionTree of cotengra"
    )
