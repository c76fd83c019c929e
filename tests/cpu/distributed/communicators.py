"""What the ranks of a test's program talk over: MPI, or PyTorch where the environment is torchrun's."""

from __future__ import annotations

import os
from typing import Any


def world() -> tuple[Any, int, int]:
    """The communicator of all ranks, this rank, and how many there are."""
    if "MASTER_PORT" not in os.environ:
        from mpi4py import MPI

        return MPI.COMM_WORLD, MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    import torch.distributed as dist

    dist.init_process_group("gloo")
    return dist.group.WORLD, dist.get_rank(), dist.get_world_size()
