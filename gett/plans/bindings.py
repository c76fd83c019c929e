"""`Bindings`: the steps of a plan, and what runs them on each device that a call came from.

Owns which executables a call gets, and that those of one call belong together: until a plan's own kernels are
compiled, shared ones make its steps, and the one takes the place of the other between calls. Knows how no step runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gett.arrays.kinds import ArrayKind, Conversion
from gett.network.request import PlanRequest
from gett.network.running import Turn, turns_of
from gett.network.steps import Executable, Step
from gett.plans.executables import choose_schedules
from gett.plans.standing_in import StandIn, bind_first


class Bindings:
    """The steps of a plan, and what runs them on each device.

    Attributes:
        arch: `"cpu"`, or the GPU architecture that it is planned for, e.g. `"sm_90a"`.
    """

    __slots__ = ("_bound", "_convert", "_past", "_request", "_settled", "_standing", "_steps", "_turns", "arch")

    def __init__(self, request: PlanRequest, steps: tuple[Step, ...], convert: Sequence[Conversion | None]) -> None:
        """Bound to the device that the steps have executables of, if they have any.

        Args:
            request: What was asked for.
            steps: The contractions.
            convert: For each operand how it is converted, None where it is read as it is.
        """
        self.arch, self._request, self._steps, self._convert = request.arch, request, steps, tuple(convert)
        self._turns = turns_of(steps, self._convert)
        self._bound: dict[int, tuple[Executable, ...]] = {}
        self._standing: dict[int, StandIn] = {}
        self._past: list[StandIn] = []  # graphs that callers recorded launch what they had
        if request.device is not None and all(s.executable is not None for s in steps):
            self._bound[request.device] = executables_of(steps)
        self._settled = bool(self._bound) or request.arch == "cpu"

    @property
    def steps(self) -> tuple[Step, ...]:
        """The contractions in order; none where the result has no elements."""
        steps = self._steps
        if self._standing and any(s.schedule is None and s.together is None for s in steps):
            chosen = choose_schedules(steps, self.arch, self._request.workspace_limit)
            if self._steps is steps:  # no call has exchanged them meanwhile
                self._steps = chosen
        return self._steps

    @steps.setter
    def steps(self, steps: tuple[Step, ...]) -> None:
        self._steps = steps

    @property
    def planned_steps(self) -> tuple[Step, ...]:
        """`steps`, of which some have no schedules while shared kernels stand in."""
        return self._steps

    @property
    def stands_in(self) -> bool:
        """Whether shared kernels make steps until the plan's own are compiled."""
        return bool(self._standing)

    @property
    def settled(self) -> bool:
        """Whether `steps` have the schedules that run, as far as these are known before a call."""
        return self._settled

    @property
    def workspace_limit(self) -> int:
        """Most bytes of workspace that a call may take."""
        return self._request.workspace_limit

    def settle_as(self, steps: tuple[Step, ...]) -> None:
        """Steps with the schedules of kernels that were compiled stand for those of the plan."""
        self.steps, self._settled = steps, True

    def stand_in(self, standing: StandIn, device: int) -> None:
        """Shared kernels make the steps on a device until the plan's own are compiled."""
        standing.turns = turns_of(standing.steps, self._convert)
        self._standing.setdefault(device, standing)

    def take_own(self) -> None:
        """Wait for kernels that are compiled in the background; from then on they run.

        Raises:
            GettError: They cannot be compiled or loaded.
        """
        for device in [*self._standing]:
            self._own(device)

    def _take(self, device: int, steps: tuple[Step, ...]) -> None:
        """From now on calls run the plan's own kernels; those that have begun keep what they have."""
        self._bound[device] = executables_of(steps)
        if not self._settled:
            self.settle_as(steps)
        self._past.append(self._standing.pop(device))

    def _form(self, kind: ArrayKind, device: int, alpha: Any) -> tuple[Sequence[Turn], Sequence[Executable], bool]:
        """What a call that begins now runs to its end: turns, their executables, and whether these are the plan's own.

        Shared kernels know no factor, so a call with one waits for the plan's own.
        """
        standing = self._standing.get(device)
        if standing is None and device not in self._bound:
            self._bind_to(device)
            standing = self._standing.get(device)
        if standing is not None:
            factor = alpha != 1 and standing.turns[-1].together
            if not standing.gives_way(partial(self._take, device), kind, wait=factor):
                return standing.turns, standing.executables, False
        return self._turns, self._bound[device], True

    def _own(self, device: int) -> Sequence[Executable]:
        """Kernels of the plan's own on a device, for who keeps them; what is not compiled is waited for.

        Raises:
            GettError: They cannot be compiled or loaded.
        """
        if device not in self._bound and device not in self._standing:
            self._bind_to(device)
        standing = self._standing.get(device)
        if standing is not None:
            standing.gives_way(partial(self._take, device), None, wait=True)
        return self._bound[device]

    def _bind_to(self, device: int) -> None:
        # Whoever had kernels compiled waits for those that another GPU's model prefers.
        request = replace(self._request, waits=True) if self._settled else self._request
        steps, standing = bind_first(self._steps, request)
        if standing is not None:
            self.stand_in(standing, device)
            return
        if not self._settled or not self._bound:  # from now on the plan shows what runs here
            self.steps, self._settled = steps, True
        self._bound.setdefault(device, executables_of(steps))


def executables_of(steps: Sequence[Step]) -> tuple[Executable, ...]:
    """What runs steps, where they are bound to a device."""
    return tuple(s.executable for s in steps if s.executable is not None)
