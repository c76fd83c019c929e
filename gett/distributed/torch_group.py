"""`TorchTransport`: messages between the ranks of a process group of `torch.distributed`.

Owns how ranks begin and leave a call on a group that has seen others. Any of them may have ended early: a message says
to which call it belongs, and what is left of an earlier one is thrown away. How messages travel is the matter of
`gett.distributed.torch_frames`.
"""

# ruff: noqa: D102 - `Transport` documents the methods

from __future__ import annotations

import pickle
import sys
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

from gett.distributed.torch_frames import Frames
from gett.distributed.transport import ALIVE, ARRAY, FAILURE
from gett.errors import OptionError

_HELLO, _BYE = 4, 5  # kinds of messages beside those of every transport
_GREETING_S = 1.0

# The receives of a group outlive a call. They go with the group.
_frames: weakref.WeakKeyDictionary[Any, Frames] = weakref.WeakKeyDictionary()


def is_group(comm: Any) -> bool:
    """Whether something is a process group; PyTorch is not loaded for the question."""
    distributed = sys.modules.get("torch.distributed")
    group = getattr(distributed, "ProcessGroup", None)
    return group is not None and isinstance(comm, group)


class TorchTransport:
    """The ranks of a process group; `Transport` says what the methods do."""

    pause = 2e-4  # threads of gloo move bytes, and need the core

    def __init__(self, group: Any) -> None:
        """Made by all ranks together, of a process group.

        Raises:
            OptionError: The group sends no tensors of the CPU by gloo.
        """
        _check_backend(group)
        self._group = group  # `Frames` does not keep it alive
        if group not in _frames:
            _frames[group] = Frames(group, frozenset({FAILURE, _BYE}))
        self._all = _frames[group]
        self._all.calls += 1
        self._call = self._all.calls
        self.rank, self.size = self._all.rank, self._all.size
        self._others = [r for r in range(self.size) if r != self.rank]
        self._inbox: defaultdict[tuple[int, int], deque[Any]] = defaultdict(deque)
        self._answered: dict[int, int] = {}  # by rank the number of the last frame that must be taken
        self._left = False
        self._greeted = 0.0

    def _send(self, kind: int, data: Any, rank: int) -> int:
        return self._all.send(kind, self._call, data, rank)

    def _read(self) -> None:
        self._all.read()
        for _ in range(len(self._all.news)):
            rank, kind, call, data = news = self._all.news.popleft()
            if call == self._call:
                self._inbox[kind, rank].append(data)
            elif call > self._call:  # of a rank that has given this one up
                self._all.news.append(news)

    def _have(self, kind: int, rank: int) -> bool:
        return bool(self._inbox.get((kind, rank)))

    def joined(self) -> bool:
        """A rank says more than once that it is there: only who sends sees that a connection is gone."""
        self._read()
        now = time.monotonic()
        if now - self._greeted > _GREETING_S:
            self._greeted = now
            for rank in self._others:
                self._send(_HELLO, b"", rank)
        return all(self._have(_HELLO, r) for r in self._others)

    def send(self, kind: int, value: Any, rank: int) -> None:
        count = self._send(kind, pickle.dumps(value, protocol=5), rank)
        if kind != ALIVE:
            self._answered[rank] = count

    def probe(self, kind: int, rank: int | None = None) -> int | None:
        self._read()
        found = (r for r in (self._others if rank is None else [rank]) if self._have(kind, r))
        return next(found, None)

    def receive(self, kind: int, rank: int) -> Any:
        return pickle.loads(self._inbox[kind, rank].popleft())

    def send_bytes(self, piece: Any, rank: int) -> None:
        self._send(ARRAY, piece, rank)

    def take_bytes(self, piece: Any, rank: int) -> Callable[[], bool]:
        def done() -> bool:
            self._read()
            if self._have(ARRAY, rank):
                piece[:] = memoryview(self._inbox[ARRAY, rank].popleft())
                return True
            return False

        return done

    def broadcast(self, piece: Any) -> Callable[[], bool]:
        """Down a binary tree of ranks; collective operations of the group are left to others."""
        below = [r for r in (2 * self.rank + 1, 2 * self.rank + 2) if r < self.size]
        come = self.take_bytes(piece, (self.rank - 1) // 2) if self.rank else lambda: True

        def done() -> bool:
            if not come():
                return False
            for rank in below:
                self.send_bytes(piece, rank)
            return True

        return done

    def taken(self) -> bool:
        self._read()
        return all(self._all.taken(r, n) or r in self._all.gone for r, n in self._answered.items())

    def leaving(self) -> bool:
        """Ranks leave together: a rank that has left would not take what another still sends."""
        if not self._left:
            self._left = True
            self._answered = {rank: self._send(_BYE, b"", rank) for rank in self._others}
        return self.taken() and all(self._have(_BYE, r) for r in self._others)

    def lost(self) -> Mapping[int, str]:
        return {rank: text for rank, text in self._all.gone.items() if not self._have(_BYE, rank)}

    def free(self) -> None:
        pass


def _check_backend(group: Any) -> None:
    """Whether a group has gloo for tensors of the CPU.

    Raises:
        OptionError: It has not.
    """
    import torch.distributed

    config = str(torch.distributed.get_backend_config(group))
    if "cpu:gloo" not in config.split(","):
        raise OptionError(
            f"comm= is a process group of {config}, and messages need gloo for the CPU: give "
            'init_process_group("cpu:gloo,cuda:nccl"), or torch.distributed.new_group(backend="gloo")'
        )
