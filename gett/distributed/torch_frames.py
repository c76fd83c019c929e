"""`Frames`: messages between the ranks of a process group of PyTorch, none of which is waited for.

Owns every call of `torch.distributed` that sends. Knows neither calls of `contract` nor what messages mean.

Gloo does not say whether a send or a receive is done: `is_completed()` is false until `wait()`, which blocks, and a
wait that times out closes connections. So what has come is seen in memory. A receive of one frame is always posted for
each rank, and the last byte of a frame is never 0. Then `wait()` returns at once and makes the rest of it visible. A
message that is too long for a frame follows on a tag of its own; the frame behind it says that it is there, because a
connection keeps the order and that frame has no receive before the long one has.

What was sent is held until its rank says, in any later frame, how many frames it has taken. Receives are never
dropped: gloo stops to read a connection on which data comes for one that is gone.
"""

from __future__ import annotations

import struct
import warnings
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_FRAME = 1024  # bytes
_HEAD = struct.Struct("<BQQQ")  # kind, call, frames taken, bytes of the message
_ROOM = _FRAME - _HEAD.size - 1
_TAG, _LONG_TAG = 0x67657474, 0x67657475  # few programs have tags like these
_NOTHING = 255  # the kind of a frame that only tells how many were taken


@dataclass(slots=True)
class _Peer:
    """What is under way between this rank and another.

    Attributes:
        place: Its rank among all processes.
        tensor: The frame that is received next.
        posted: Its receive.
        long: Kind, call, memory and receive of a long message that has begun.
        sent: Frames that are not known to be taken, with what belongs to them.
        count: Of frames that were sent.
        told: How many of them are taken.
        taken: How many of its frames are.
    """

    place: int
    tensor: Any
    posted: Any = None
    long: tuple[int, int, Any, Any] | None = None
    sent: deque[list[tuple[Any, Any]]] = field(default_factory=deque)
    count: int = 0
    told: int = 0
    taken: int = 0


class Frames:
    """The ranks of a process group, for as long as it exists; made by all of them.

    Attributes:
        rank: This rank within the group.
        size: How many ranks there are.
        calls: How many calls the group has seen.
        news: Messages that have come: source, kind, call, bytes.
        gone: Ranks to which there is no connection, and what gloo says of that.
    """

    def __init__(self, group: Any, answered: frozenset[int]) -> None:
        """For a group; messages of the kinds `answered` are known to be taken as soon as they are."""
        import torch
        import torch.distributed

        self._torch, self._group, self._answered = torch, weakref.ref(group), answered
        places = torch.distributed.get_process_group_ranks(group)
        self.rank, self.size = torch.distributed.get_rank(group), len(places)
        self.calls = 0
        self.news: deque[tuple[int, int, int, Any]] = deque()
        self.gone: dict[int, str] = {}
        self._memory = np.zeros((self.size, _FRAME), np.uint8)
        self._peers = [_Peer(place, torch.from_numpy(x)) for place, x in zip(places, self._memory, strict=True)]
        for rank in range(self.size):
            if rank != self.rank:
                self._post(rank)

    def send(self, kind: int, call: int, data: Any, rank: int) -> int:
        """Send bytes, which must stay as they are; the number of frames until then."""
        peer, size = self._peers[rank], len(data)
        held = bytes(data) if size <= _ROOM else b""
        head = _HEAD.pack(kind, call, peer.taken, size)
        frame = np.frombuffer(bytearray((head + held).ljust(_FRAME - 1, b"\0") + b"\1"), np.uint8)
        parts = [self._isend(frame, rank, _TAG)]
        if size > _ROOM:
            parts.append(self._isend(np.frombuffer(data, np.uint8), rank, _LONG_TAG))
        peer.sent.append(parts)
        peer.count += 1
        return self.send(_NOTHING, call, b"", rank) if size > _ROOM else peer.count

    def taken(self, rank: int, count: int) -> bool:
        """Whether a rank is known to have taken so many frames."""
        return self._peers[rank].told >= count

    def read(self) -> None:
        """Put what has come among the news, and receive what comes next."""
        for rank in np.flatnonzero(self._memory[:, -1]).tolist():
            if rank not in self.gone:
                self._take(rank)

    def _take(self, rank: int) -> None:
        peer, frame = self._peers[rank], self._memory[rank]
        if not self._finish(peer.posted, rank):
            return
        kind, call, told, size = _HEAD.unpack(frame[: _HEAD.size].tobytes())
        while peer.told < told:
            for work, _ in peer.sent.popleft():
                self._finish(work, rank)
            peer.told += 1
        if peer.long is not None:  # this is the frame behind it
            before, of, memory, work = peer.long
            if not self._finish(work, rank):
                return
            peer.long = None
            self._add(rank, before, of, memory)
        if size > _ROOM:
            memory = np.empty(size, np.uint8)
            receive = self._torch.distributed.irecv
            peer.long = kind, call, memory, self._ask(receive, self._torch.from_numpy(memory), rank, _LONG_TAG)
        else:
            self._add(rank, kind, call, frame[_HEAD.size : _HEAD.size + size].tobytes())
        self._post(rank)

    def _add(self, rank: int, kind: int, call: int, data: Any) -> None:
        self._peers[rank].taken += 1
        if kind != _NOTHING:
            self.news.append((rank, kind, call, data))
        if kind in self._answered:
            self.send(_NOTHING, call, b"", rank)

    def _post(self, rank: int) -> None:
        peer = self._peers[rank]
        self._memory[rank, -1] = 0
        peer.posted = self._ask(self._torch.distributed.irecv, peer.tensor, rank, _TAG)

    def _isend(self, array: Any, rank: int, tag: int) -> tuple[Any, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of arrays that may not be written: nobody does
            tensor = self._torch.from_numpy(array)
        return self._ask(self._torch.distributed.isend, tensor, rank, tag), array

    def _ask(self, function: Any, tensor: Any, rank: int, tag: int) -> Any:
        """Begin a send or a receive; None if its rank is gone."""
        if rank in self.gone:
            return None
        try:
            return function(tensor, self._peers[rank].place, group=self._group(), tag=tag)
        except RuntimeError as error:
            self.gone[rank] = str(error)
            return None

    def _finish(self, work: Any, rank: int) -> bool:
        """Wait for what is known to be done."""
        try:
            return work is not None and bool(work.wait())
        except RuntimeError as error:
            self.gone[rank] = str(error)
            return False
