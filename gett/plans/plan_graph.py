"""`PlanGraph`: a call of a plan on given arrays as one CUDA graph, which its owner plays when and where they want."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gett.arrays.kinds import ArrayKind
from gett.errors import DeviceError, OptionError, OutputError, ShapeError
from gett.ir.tensors import TensorSpec
from gett.network.running import Ending
from gett.plans.bound_steps import BoundSteps
from gett.plans.checks import check_fits, check_out


class PlanGraph:
    """What `plan.graph(...)` returns: a call's launches, recorded once, in memory of its own.

    It has no lock. Calls of it on several streams use the same memory and the same result, so whoever makes them orders
    the streams.

    Attributes:
        operands: The arrays that the next launch reads.
        out: The array that it writes.
    """

    __slots__ = ("_alpha", "_device", "_kind", "_plan", "_planned", "_replay", "operands", "out")

    def __init__(
        self,
        plan: BoundSteps,
        planned: Sequence[TensorSpec],
        kind: ArrayKind,
        device: int,
        operands: Sequence[Any],
        out: Any,
        alpha: Any,
    ) -> None:
        """Made by `plan.graph`, and recorded by the first launch.

        Args:
            plan: It has run on the arrays.
            planned: The operands that it was made for.
            kind: Of the arrays.
            device: Where they are.
            operands: Arrays.
            out: Where the result goes.
            alpha: Factor of the contraction.

        Raises:
            OptionError: A call of the plan does more than launch kernels.
            OutputError: `out` shares memory with an operand.
        """
        self._plan, self._planned, self._kind, self._device, self._alpha = plan, planned, kind, device, alpha
        self._take(operands, out)
        replay = plan.played_by_hand(kind, device)
        if replay is None:
            raise OptionError(
                "graph() records kernels, and a call of this plan does more than launch them: it converts arrays, "
                "runs slices, or holds results"
            )
        self._replay = replay

    @property
    def nbytes(self) -> int:
        """Bytes that it keeps for intermediates and workspaces."""
        return self._replay.nbytes

    def launch(self) -> Any:
        """Play all launches on the current stream of the arrays' library; returns `out`.

        Raises:
            DeviceError: They could not be recorded or played, such as on a stream that records a graph.
        """
        context = self._kind.on(self._device)
        if context is not None:
            with context:
                return self._launch()
        return self._launch()

    def _launch(self) -> Any:
        if not self._replay(self.operands, Ending(None, self.out, self._alpha)):
            raise DeviceError("the graph of a plan could not be recorded or played on the current stream")
        return self.out

    def update(self, *operands: Any, out: Any = None) -> None:
        """Have later launches read and write other arrays; launches whose arrays did not move stay as they are.

        Args:
            operands: As many as before, with the shapes, strides, dtypes and alignment that the plan was made for.
            out: Where the result goes; None for the array that it went to before.

        Raises:
            ShapeError, OutputError: They do not fit.
        """
        if len(operands) != len(self.operands):
            raise ShapeError(f"the graph takes {len(self.operands)} operands, {len(operands)} were given")
        for i, (want, x) in enumerate(zip(self._planned, operands, strict=True)):
            check_fits(f"operand {i}", want, self._kind.describe(x), ShapeError, True)
        if out is not None:
            given = check_out(out, self._kind, self._device)
            check_fits("out", self._kind.describe(self.out), given, OutputError, True)
        self._take(operands, self.out if out is None else out)

    def _take(self, operands: Sequence[Any], out: Any) -> None:
        if self._plan.is_near(self._kind, operands, out):
            raise OutputError("out shares memory with an operand, and a graph writes it in place")
        self.operands, self.out = tuple(operands), out
