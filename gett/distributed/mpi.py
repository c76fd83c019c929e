"""`MpiTransport`: messages between the ranks of a communicator of mpi4py.

Owns every call of mpi4py. A call has a communicator of its own, so that nothing is taken for another's message.
"""

# ruff: noqa: D102 - `Transport` documents the methods

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gett.distributed.transport import ARRAY


class MpiTransport:
    """The ranks of a communicator; `Transport` says what the methods do."""

    pause = 0.0

    def __init__(self, comm: Any) -> None:
        """Made by all ranks together, of mpi4py's communicator."""
        from mpi4py import MPI

        self._mpi = MPI
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self._sent: list[Any] = []
        self._own, self._made = comm.Idup()

    def joined(self) -> bool:
        return bool(self._made.Test())

    def send(self, kind: int, value: Any, rank: int) -> None:
        self._sent.append(self._own.isend(value, rank, kind))

    def probe(self, kind: int, rank: int | None = None) -> int | None:
        status = self._mpi.Status()
        found = self._own.iprobe(self._mpi.ANY_SOURCE if rank is None else rank, kind, status)
        return int(status.Get_source()) if found else None

    def receive(self, kind: int, rank: int) -> Any:
        return self._own.recv(source=rank, tag=kind)

    def send_bytes(self, piece: Any, rank: int) -> None:
        self._sent.append(self._own.Isend([piece, self._mpi.BYTE], rank, ARRAY))

    def take_bytes(self, piece: Any, rank: int) -> Callable[[], bool]:
        done: Callable[[], bool] = self._own.Irecv([piece, self._mpi.BYTE], rank, ARRAY).Test
        return done

    def broadcast(self, piece: Any) -> Callable[[], bool]:
        done: Callable[[], bool] = self._own.Ibcast([piece, self._mpi.BYTE], 0).Test
        return done

    def taken(self) -> bool:
        self._sent = [x for x in self._sent if not x.Test()]
        return not self._sent

    def leaving(self) -> bool:
        return self.taken()

    def lost(self) -> Mapping[int, str]:
        return {}  # MPI's launcher ends all ranks then

    def free(self) -> None:
        self._own.Free()
