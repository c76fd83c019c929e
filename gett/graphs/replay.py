"""Steps of a plan as one launch: recorded as a CUDA graph on memory of its own, played with the addresses of each call.

Owns which launches a call changes, and when steps are launched one by one instead. Where intermediates lie is
`gett.graphs.places`'s, the graph `gett.runtime.graphs`'s.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from gett.arrays.kinds import ArrayKind
from gett.errors import GettError
from gett.graphs.branches import Order, one_by_one, side_by_side
from gett.graphs.places import ARENA_LIMIT
from gett.graphs.seen import LEAST, Seen
from gett.network.running import Ending, Turn

LEAST_STEPS = 3
LAUNCH_US = 3.0  # of a launch, however little it has to do
SHARE = 16  # all plans together keep at most this part of a device's memory

Given = tuple[Sequence[int], tuple[Any, ...]]
"""What may differ between calls: addresses of operands, and what the last step takes."""
_NOTHING: Given = (), ()
_kept: dict[int, int] = {}
_kept_lock = threading.Lock()
_now = threading.local()  # `arena`: where this thread records


class Arena:
    """Memory that plans share which run one after the other, as those of slices do, for as long as this lives.

    Within it, plans record and play on this memory alone, the second time that one of them runs. `with Arena(False)`
    they launch their steps one by one.
    """

    def __init__(self, records: bool = True) -> None:
        """Without memory as yet."""
        self._records, self._memory, self._nbytes = records, None, 0
        self._seen: set[int] = set()
        self._users: list[Replay] = []
        self._before: list[Arena | None] = []

    def __enter__(self) -> Arena:
        self._before.append(getattr(_now, "arena", None))
        _now.arena = self
        return self

    def __exit__(self, *_: object) -> None:
        _now.arena = self._before.pop()

    def __del__(self) -> None:
        self._drop()

    def memory_for(self, replay: Replay, nbytes: int) -> Any:
        """The memory for the launches of a plan; None where they are made one by one."""
        if not self._records or (self._memory is None and id(replay) not in self._seen):
            self._seen.add(id(replay))
            return None
        if self._memory is None:
            self._memory, self._nbytes = replay.allocate(nbytes), nbytes
        elif nbytes > self._nbytes:
            self._drop()  # its place is for what is launched one by one
            return None
        self._users.append(replay)
        return self._memory

    def _drop(self) -> None:
        users, self._users, self._memory = self._users, [], None
        for replay in users:
            replay.forget()


class Replay:
    """The steps of a plan on one device, of arrays of one library."""

    def __init__(
        self,
        kind: ArrayKind,
        device: int,
        turns: Sequence[Turn],
        executables: Sequence[Any],
        operands: int,
        *,
        by_hand: bool = False,
    ) -> None:
        """Recorded when it is called first.

        Args:
            kind: Of the arrays.
            device: Where they are.
            turns: The steps.
            executables: One for each.
            operands: How many there are.
            by_hand: Whether a caller plays it, who orders streams and wants the memory whatever it is.
        """
        self._kind, self._device, self._turns, self._count, self._by_hand = kind, device, turns, operands, by_hand
        self._executables, self._workspaces = executables, [x.workspace_bytes for x in executables]
        self._lock = threading.Lock()
        self._graph: Any = None
        self._arena: Any = None
        self._failed = False
        self._stream = -1
        self._last = _NOTHING
        self._seen: Seen[tuple[int, ...]] = Seen()  # their addresses
        self._numbers: list[range] = []  # of the graph's nodes that each launch is
        self._memory: Any = None
        self._readers: list[list[int]] = []  # launches that read each operand
        self._writers: list[int] = []  # those that write the result

    def __call__(self, operands: Sequence[Any], ending: Ending) -> bool:
        """Play the steps on the current stream; whether that was possible, else nothing was launched."""
        stream = self._kind.stream()
        if self._failed or not self._lock.acquire(blocking=False):
            return False
        try:
            arena = None if self._by_hand else getattr(_now, "arena", None)
            if self._graph is None:
                return self._record(stream, operands, ending, arena)
            if not self._by_hand and stream != self._stream:
                return False
            if (None if self._arena is None else self._arena()) is not arena:
                return False
            return self._play(stream, operands, ending)
        finally:
            self._lock.release()

    @property
    def nbytes(self) -> int:
        """Memory that intermediates and workspaces take."""
        return self._order.places.nbytes

    def allocate(self, nbytes: int) -> Any:
        """Memory of the arrays' own library, on the current stream."""
        return self._kind.empty((max(1, nbytes),), np.dtype(np.uint8))

    def forget(self) -> None:
        """Drop the graph: its memory goes."""
        with self._lock:
            self._graph = self._memory = self._arena = None
            self._last = _NOTHING

    def _play(self, stream: int, operands: Sequence[Any], ending: Ending) -> bool:
        from gett.runtime.graphs import is_capturing

        handle = ctypes.c_void_p(stream)
        if is_capturing(self._driver, handle):
            return False
        own, ends = given = self._given(operands, ending)
        before, last = self._last
        moved = own is not before and own != before
        if moved or ends != last:
            changed = set(self._writers) if ends != last else set()
            if moved:
                for i, readers in enumerate(self._readers):
                    if not before or own[i] != before[i]:
                        changed.update(readers)
            self._last = _NOTHING  # until all launches have the new arguments
            addresses = (*own, *ends)
            for k in changed:
                arguments = self._arguments(k, addresses)
                if not self._of(k).change(self._graph, self._numbers[k], *arguments):
                    self._failed = True
                    return False
            self._last = given
        return not self._graph.play(handle)

    def _given(self, operands: Sequence[Any], ending: Ending) -> Given:
        """What may differ between calls: addresses of operands, and what the last step takes."""
        pointer = self._kind.pointer
        c, d, alpha, beta, extras = ending
        read = [pointer(extras[i]) for i in self._turns[-1].extras]
        return self._of_operands(operands), (0 if c is None else pointer(c), pointer(d), alpha, beta, *read)

    def _of_operands(self, operands: Sequence[Any]) -> Sequence[int]:
        """Addresses of operands."""
        if self._kind.launch is not None:
            return [*map(self._kind.pointer, operands)]
        many = len(operands) >= LEAST
        if many and (known := self._seen.known(operands)) is not None:
            return known
        own = tuple([x.data.ptr for x in operands])  # CuPy's without a call for each
        if many:
            self._seen.note(operands, own)
        return own

    def _of(self, launch: int) -> Any:
        return self._executables[self._order.launches[launch][0]]

    def _arguments(self, launch: int, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """What the executable's `record` and `change` take of a launch."""
        numbers = self._order.launches[launch]
        n, places = numbers[0], self._order.places
        if self._turns[n].together:
            return ([self._addresses(n, given) for n in numbers],)
        workspace = self._base + places.workspaces[n] if self._executables[n].workspace_bytes else 0
        addresses = self._addresses(n, given)
        if not self._turns[n].is_last:
            return addresses, workspace
        alpha, beta, *extras = given[self._count + 2 :]
        return addresses, workspace, alpha, beta, extras

    def _addresses(self, n: int, given: tuple[Any, ...]) -> tuple[int, int, int, int]:
        """The addresses of a turn's tensors: a, b, c and d."""
        turn, count = self._turns[n], self._count

        def address(tensor: int | None) -> int:
            if tensor is None:
                return 0
            found: int = given[tensor] if tensor < count else self._base + self._order.places.tensors[tensor]
            return found

        a, b = address(turn.first), address(turn.second)
        if turn.is_last:
            return a, b, given[count], given[count + 1]
        return a, b, 0, address(turn.output)

    @cached_property
    def _order(self) -> Order:
        """Launches side by side, as long as the driver records them so."""
        return side_by_side(self._turns, self._workspaces, [*map(_us, self._executables)])

    def _record(self, stream: int, operands: Sequence[Any], ending: Ending, arena: Arena | None) -> bool:
        """Record the steps with the arguments of this call, and play them; never again where that fails."""
        from gett.runtime.driver import load_driver
        from gett.runtime.graphs import Recorder, is_capturing

        driver = self._driver = load_driver()
        if is_capturing(driver, ctypes.c_void_p(stream)):
            return False
        nbytes = self._order.places.nbytes
        self._failed = True  # until it is done
        if nbytes > ARENA_LIMIT and not self._by_hand:
            return False
        try:
            if arena is not None:
                memory = arena.memory_for(self, nbytes)
                self._failed = memory is not None
            else:
                memory = self.allocate(nbytes) if self._by_hand or self._keep(nbytes) else None
            if memory is None:
                return False
            self._memory, self._base = memory, self._kind.pointer(memory)
            given = self._given(operands, ending)
            try:
                graph = self._recorded(Recorder(driver), given)
            except GettError:
                if self._order.after is None:
                    raise
                self._order = one_by_one(self._turns, self._workspaces)
                graph = self._recorded(Recorder(driver), given)
        except GettError:
            return False
        self._arena = None if arena is None else weakref.ref(arena)
        self._graph, self._stream, self._last, self._failed = graph, stream, given, False
        return self._play(stream, operands, ending)

    def _recorded(self, recorder: Any, given: Given) -> Any:
        """The graph of all launches.

        Raises:
            GettError: The driver does not record them.
        """
        addresses, after = (*given[0], *given[1]), self._order.after
        ends: list[int] = []  # of each launch the number of its last node
        self._numbers, self._readers, self._writers = [], [[] for _ in range(self._count)], []
        try:
            for k, launch in enumerate(self._order.launches):
                turns = [self._turns[n] for n in launch]
                for i in {i for turn in turns for i in turn.inputs if i < self._count}:
                    self._readers[i].append(k)
                if any(turn.is_last for turn in turns):
                    self._writers.append(k)
                if after is not None:
                    recorder.after(ends[n] for n in after[k])
                start = ends[-1] + 1 if ends else 0
                count = self._of(k).record(recorder, *self._arguments(k, addresses))
                self._numbers.append(range(start, start + count))
                ends.append(start + count - 1)
            return recorder.end()
        finally:
            recorder.close()

    def _keep(self, nbytes: int) -> bool:
        """Count memory as kept for as long as this lives; whether there may be so much."""
        most = self._kind.memory(self._device) // SHARE
        with _kept_lock:
            if _kept.get(self._device, 0) + nbytes > most:
                return False
            _kept[self._device] = _kept.get(self._device, 0) + nbytes
        weakref.finalize(self, _release, self._device, nbytes)
        return True


def _release(device: int, nbytes: int) -> None:
    with _kept_lock:
        _kept[device] = max(0, _kept.get(device, 0) - nbytes)


def _us(executable: Any) -> float:
    """How long a launch is expected to run."""
    forecast = getattr(getattr(executable, "schedule", None), "forecast", None)
    return LAUNCH_US if forecast is None else max(LAUNCH_US, forecast.us)


def may_replay(turns: Sequence[Turn], executables: Sequence[Any] = (), *, by_hand: bool = False) -> bool:
    """Whether steps are played as one graph: there are enough, and they are nothing but launches that are recorded.

    Args:
        turns: The steps.
        executables: What runs them, as far as that is known.
        by_hand: Whether a caller plays them; one is enough then.
    """
    enough = by_hand or len(turns) >= LEAST_STEPS or any(turn.together for turn in turns)
    return enough and not any(turn.converted for turn in turns) and all(hasattr(x, "record") for x in executables)
