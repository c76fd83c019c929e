"""The cost model of bandwidth-bound kernels: bytes, and the runs in which they lie together."""

from __future__ import annotations

from collections.abc import Mapping

from gett.hw.archs import ArchFacts
from gett.hw.device import DeviceModel, nearest
from gett.ir.gemm import A, B, GemmPlan
from gett.schedule.cost.estimate import Estimate
from gett.schedule.spec.schedule import Tiling
from gett.schedule.spec.stream_views import TensorView
from layouts.access import contiguous_run
from layouts.box import Box
from layouts.rates import run_cost


def stream_estimate(
    plan: GemmPlan, device: DeviceModel, tiling: Tiling, tensors: Mapping[int, TensorView], split: int
) -> Estimate:
    """The time of all bytes at the rates of their runs."""
    us = 0.0
    if all(tiling.m.extents):
        us = (
            sum(x.bytes * _cost(plan, device, tiling, t, x) for t, x in tensors.items())
            / device.memory.copy_tbps
            * 1e-6
        )
    return Estimate(us + device.launches.launch_us * (2 if split > 1 else 1), "DRAM", split)


def _cost(plan: GemmPlan, device: DeviceModel, tiling: Tiling, tensor: int, view: TensorView) -> float:
    """Relative cost of a tensor's traffic: by its longest run in either group."""
    if view.bytes == 0:
        return 1.0
    runs = [contiguous_run(tiling.m, view.strides, view.size)]
    if plan.extent_k > 1 and tensor in (A, B):
        runs.append(contiguous_run(tiling.k, [s.strides[tensor] for s in plan.k], view.size))
    return run_cost(device.memory, max(runs), store=view.store)


def sum_slices(facts: ArchFacts, box_o: Box, box_k: Box, read: int, partial_bytes: int) -> int:
    """Slices of K that give the multiprocessors enough blocks, 1 for none."""
    steps, tiles, rates = box_k.tiles, max(1, box_o.tiles), nearest(facts).streams
    blocks = facts.sm_count * rates.split_blocks
    split = min(blocks // tiles, steps // 2, facts.workspace_limit // (tiles * partial_bytes))
    if split < 2 or tiles * 2 > blocks or read // tiles < 2 * rates.least_slice_bytes:
        return 1
    return -(-steps // -(-steps // split))
