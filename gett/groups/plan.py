"""`GroupedPlan`: problems that are computed together, as users hold them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from gett.arrays.kinds import NUMPY
from gett.console.formatting import count
from gett.errors import OptionError, ShapeError
from gett.groups.launches import Launches
from gett.groups.layouts import Asked
from gett.groups.loop import Compute, equal_arrays, run_pairs
from gett.groups.overlaps import check_apart
from gett.groups.reading import Problem, Reading, check_outs, read
from gett.groups.table import Outputs, each_apart, group_outputs, make_tables
from gett.ir.tensors import ALIGNMENT_LIMIT

_SHOWN = 8  # launches of which `print(plan)` tells


class GroupedPlan:
    """Contractions that are computed together, to be run many times: `plan()`, or `plan(operands, out)`.

    A plan holds its arrays, so only one thread may call it at a time.

    Attributes:
        problems: How many there are.
        arch: `"cpu"`, or the GPU architecture, e.g. `"sm_90a"`.
        launches: Kernels that a call launches; 0 on the CPU.
        apart: Problems that are computed one by one, since no kernel of a table takes them; all of them on the CPU.
    """

    __slots__ = ("_compute", "_launches", "_outs", "_precision", "_problems", "_reading", "_rest", "apart", "arch")

    def __init__(self, problems: list[Problem], outs: list[Any] | None, precision: Asked, compute: Compute):
        """Made by `gett.plan_grouped`.

        Args:
            problems: Checked.
            outs: An array for each, or None.
            precision: As it was asked for.
            compute: What contracts a single pair.
        """
        self._precision, self._compute = precision, compute
        self._problems, self._outs = problems, outs
        self.arch = "cpu"
        self._launches: Launches | None = None
        self._reading = read(problems, outs, precision)
        if self._reading is None:
            numbers = [[i] for i in range(len(problems))] if outs is None else equal_arrays(outs)
            self._rest, self.apart = numbers, len(problems)
            return
        with _on(self._reading):
            self._make(self._reading)

    @property
    def problems(self) -> int:
        """How many problems there are."""
        return len(self._problems)

    @property
    def launches(self) -> int:
        """Kernels that a call launches for all problems that are not `apart`."""
        return 0 if self._launches is None else len(self._launches.tables)

    def _make(self, reading: Reading) -> None:
        """Tables, results where none are given, and what is left to single pairs."""
        outputs = self._outputs(reading)
        if self._outs is not None:
            check_apart(reading, outputs)
        else:
            specs = [x.d for x in reading.layouts]
            self._outs = [reading.kind.empty(specs[i].shape, specs[i].dtype) for i in reading.which.tolist()]
            reading.d = np.array([reading.kind.pointer(x) for x in self._outs], np.uint64)
        self.arch = reading.kind.arch(reading.device)
        rest = np.arange(len(outputs.count))
        if reading.kind is not NUMPY:
            tables, rest = make_tables(
                reading.layouts, reading.which, outputs, reading.a, reading.b, reading.d, self.arch
            )
            if tables:
                self._launches = Launches(reading.kind, reading.device, reading.layouts, tables)
                self._launches.point(reading)
        first, last = outputs.first.tolist(), (outputs.first + outputs.count).tolist()
        order = outputs.order.tolist()
        self._rest = [order[first[i] : last[i]] for i in rest.tolist()]
        self.apart = sum(map(len, self._rest))

    def _outputs(self, reading: Reading) -> Outputs:
        if self._outs is None:
            return each_apart(self.problems)
        return group_outputs(reading.which, reading.d, reading.layouts)

    def __call__(self, operands: Sequence[Any] | None = None, out: Sequence[Any] | None = None) -> list[Any]:
        """Compute all problems again.

        Args:
            operands: For each problem the pair of operands, laid out as planned; None for those of the plan. The new
                ones become the plan's.
            out: The arrays to write; None for those of the plan.

        Returns:
            The results in a list; an array that several problems sum into occurs as often. A plan that was made
            without `out` writes the same arrays in every call; of arrays of other libraries than NumPy, CuPy and
            PyTorch on a GPU it makes new ones.

        Raises:
            OptionError: There are not as many operands or arrays as problems.
            ShapeError: An array is laid out otherwise than planned; the text numbers its problem.
            OutputError: An array cannot be written, or shares memory with operands.
            DeviceError: A launch failed.
        """
        if operands is not None or out is not None:
            self._replace(operands, check_outs(out, self.problems))
        reading, outs = self._reading, self._outs
        if reading is None:
            return self._run_apart(list(outs or [None] * self.problems))
        assert outs is not None
        with _on(reading):
            if self._launches is not None:
                self._launches.run()
            if self._rest:
                self._run_apart(outs)
        return list(outs)

    def _run_apart(self, outs: list[Any]) -> list[Any]:
        for numbers in self._rest:
            result = run_pairs(self._compute, self._problems, numbers, outs[numbers[0]], self._precision)
            for i in numbers:
                outs[i] = result if outs[i] is None else outs[i]
        return outs

    def _replace(self, operands: Sequence[Any] | None, outs: list[Any] | None) -> None:
        """Take other arrays, whose addresses alone may differ."""
        problems = self._problems
        if operands is not None:
            if len(operands) != self.problems:
                raise OptionError(f"the plan is for {self.problems} problems, {len(operands)} pairs are given")
            problems = [(spec, a, b) for (spec, _, _), (a, b) in zip(problems, operands, strict=True)]
        before, outs = self._reading, self._outs if outs is None else outs
        after = read(problems, outs, self._precision)
        if before is None or after is None:
            if before is not after:
                raise OptionError("the plan was made for arrays of another library or device")
            self._problems, self._outs = problems, outs
            self._rest = self._rest if outs is None else equal_arrays(outs)
            return
        check_layouts(before, after)
        outputs, made = self._outputs(after), self._outputs(before)
        check_apart(after, outputs)
        self._problems, self._outs, self._reading = problems, outs, after
        with _on(after):
            same = np.array_equal(outputs.order, made.order) and np.array_equal(outputs.count, made.count)
            if self._launches is None or (same and _as_aligned(before, after)):
                if self._launches is not None:
                    self._launches.point(after)
                if same:
                    return
            self._launches = None
            self._make(after)

    def explain(self) -> str:
        """The plan as text: how many problems, and the launches that compute them."""
        lines = [f"{count(self.problems, 'problem')} on {'the CPU' if self.arch == 'cpu' else self.arch}"]
        tables = [] if self._launches is None else self._launches.tables
        for table in tables[:_SHOWN]:
            s = table.schedule
            shape = " x ".join(map(str, s.tile.shape))
            how = "tensor cores" if s.tensor_cores else "multiply-adds"
            lines.append(f"  {s.dtype}, {count(len(table.outputs), 'output')}: {table.blocks} tiles of {shape}, {how}")
        if len(tables) > _SHOWN:
            lines.append(f"  and {count(len(tables) - _SHOWN, 'launch', 'launches')} more")
        if self.apart:
            lines.append(f"  {count(self.apart, 'problem')} one after the other")
        return "\n".join(lines)

    def __str__(self) -> str:
        """`explain()`."""
        return self.explain()


def check_layouts(before: Reading, after: Reading) -> None:
    """Refuse problems that are laid out otherwise than those of a plan.

    Raises:
        ShapeError: The text numbers the first of them.
        OptionError: They are in another place.
    """
    if (after.kind.name, after.device) != (before.kind.name, before.device):
        raise OptionError(f"the plan was made for {before.kind.name} arrays on device {before.device}")
    if after.layouts == before.layouts and np.array_equal(after.which, before.which):
        return
    for i, (x, y) in enumerate(zip(before.which.tolist(), after.which.tolist(), strict=True)):
        if before.layouts[x] != after.layouts[y]:
            raise ShapeError(f"problem {i}: shapes, strides or dtypes are not those that the plan was made for")


def _as_aligned(before: Reading, after: Reading) -> bool:
    """Whether addresses are multiples of at least what those of the plan are."""
    pairs = ((before.a, after.a), (before.b, after.b), (before.d, after.d))
    return all((_alignment(new) >= _alignment(old)).all() for old, new in pairs)


def _alignment(addresses: Any) -> Any:
    return np.where(addresses % ALIGNMENT_LIMIT == 0, ALIGNMENT_LIMIT, addresses & (~addresses + np.uint64(1)))


def _on(reading: Reading) -> AbstractContextManager[Any]:
    """A context in which the device of a reading is current."""
    return (None if reading.kind is NUMPY else reading.kind.on(reading.device)) or nullcontext()
