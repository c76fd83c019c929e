"""`Channel`: what ranks tell each other, with an end to every wait.

Owns messages, signs of life and failures: no wait is longer than its limit, and an error of one rank is one of all.
Knows neither plans nor slices, nor the library by which messages travel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

import numpy as np

from gett.distributed.transport import ALIVE, FAILURE, VALUE, Transport
from gett.errors import DistributedError

_PIECE = 1 << 30  # bytes of an array in one message: counts of some MPI libraries have 31 bits
_POLL_S = 2e-4
_ALIVE_S = 1.0
_LAST_WORDS_S = 2.0  # in which an error is told to the others


class Channel:
    """The ranks of a call, with messages of their own.

    Attributes:
        rank: This rank.
        size: How many ranks there are.
    """

    def __init__(self, transport: Transport, timeout: float | None) -> None:
        """Made by all ranks together.

        Args:
            transport: By which messages travel.
            timeout: Most seconds without a sign of a rank that is waited for; None for no limit.

        Raises:
            DistributedError: A rank did not come.
        """
        self._transport, self._timeout = transport, timeout
        self.rank, self.size = transport.rank, transport.size
        self._seen: dict[int, float] = {}
        self._told, self._over, self._joined = 0.0, False, False
        self._wait(transport.joined, range(self.size))
        self._joined = True

    @property
    def others(self) -> list[int]:
        """All ranks but this one."""
        return [r for r in range(self.size) if r != self.rank]

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Wait until what this rank has sent is taken; an error is told to all instead."""
        if error is None:
            self._wait(self._transport.leaving, self.others)
            self._transport.free()
        elif not self._over:  # else all were told by the rank that failed first
            text = f"rank {self.rank}: {type(error).__name__}: {error}"
            for other in self.others:
                self._transport.send(FAILURE, text, other)
            end = time.monotonic() + _LAST_WORDS_S
            while not self._transport.taken() and time.monotonic() < end:
                time.sleep(_POLL_S)

    def alive(self) -> None:
        """Give the others a sign, at most once a second, and end here if one has failed.

        Raises:
            DistributedError: Another rank failed; the text is its error.
        """
        while (rank := self._transport.probe(ALIVE)) is not None:
            self._transport.receive(ALIVE, rank)
            self._seen[rank] = time.monotonic()
        if (rank := self._transport.probe(FAILURE)) is not None:
            self._over = True
            raise DistributedError(self._transport.receive(FAILURE, rank))
        self._check_lost()
        now = time.monotonic()
        if now - self._told > _ALIVE_S:
            self._told = now
            self._transport.taken()
            for other in self.others:
                self._transport.send(ALIVE, None, other)

    def _check_lost(self) -> None:
        for rank, text in self._transport.lost().items():
            raise DistributedError(f"rank {rank} has ended: {text}")

    def _wait(self, done: Callable[[], Any], ranks: Iterable[int], pause: float = _POLL_S) -> None:
        """Wait until something is done, asking again after a pause: messages move on while somebody asks.

        Raises:
            DistributedError: One of the ranks has given no sign for too long, or failed.
        """
        began = time.monotonic()
        while not done():
            if self._joined:
                self.alive()
            else:
                self._check_lost()
            now = time.monotonic()
            silent = {r: now - max(began, self._seen.get(r, 0.0)) for r in ranks if r != self.rank}
            late = [r for r, seconds in silent.items() if self._timeout is not None and seconds > self._timeout]
            if late:
                raise DistributedError(
                    f"rank {self.rank} has waited {max(silent.values()):.3g} s without a sign of "
                    f"{'rank' if len(late) == 1 else 'ranks'} {', '.join(map(str, late))}; timeout= says how long to "
                    "wait"
                )
            time.sleep(pause)

    def send(self, value: Any, rank: int) -> None:
        """Send anything small."""
        self._transport.send(VALUE, value, rank)

    def receive(self, rank: int) -> Any:
        """What a rank sends next."""
        self._wait(lambda: self._transport.probe(VALUE, rank) is not None, [rank])
        return self._transport.receive(VALUE, rank)

    def sender(self, ranks: Iterable[int]) -> int:
        """A rank of which something can be received; waits for signs of all of some ranks."""
        found: list[int] = []

        def come() -> bool:
            rank = self._transport.probe(VALUE)
            found.extend([] if rank is None else [rank])
            return bool(found)

        self._wait(come, list(ranks))
        return found[0]

    def has_news(self) -> bool:
        """Whether something can be received now."""
        return self._transport.probe(VALUE) is not None

    def send_array(self, array: Any, rank: int) -> None:
        """Send a dense array, which must stay as it is."""
        self.send(_head(array), rank)
        for piece in _pieces(array):
            self._transport.send_bytes(piece, rank)

    def receive_array(self, rank: int) -> Any:
        """The array that a rank sends next."""
        array = _empty(self.receive(rank))
        for piece in _pieces(array):
            self._wait(self._transport.take_bytes(piece, rank), [rank], self._transport.pause)
        return array

    def broadcast(self, arrays: list[Any] | None) -> list[Any]:
        """The dense arrays of rank 0, on all ranks; called by all, by others with None."""
        if self.rank == 0:
            assert arrays is not None
            for other in self.others:
                self.send([_head(x) for x in arrays], other)
        else:
            arrays = list(map(_empty, self.receive(0)))
        for array in arrays:
            for piece in _pieces(array):
                self._wait(self._transport.broadcast(piece), self.others, self._transport.pause)
        return arrays


_Head = tuple[tuple[int, ...], str, str]


def _head(array: Any) -> _Head:
    return array.shape, array.dtype.str, "C" if array.flags.c_contiguous else "F"


def _empty(head: _Head) -> Any:
    shape, dtype, order = head
    return np.empty(shape, dtype, order)  # type: ignore[call-overload]


def _pieces(array: Any) -> Iterator[Any]:
    """The bytes of a dense array in parts."""
    flat = array.reshape(-1, order="C" if array.flags.c_contiguous else "F").view(np.uint8)
    for start in range(0, flat.size, _PIECE):
        yield flat[start : start + _PIECE]
