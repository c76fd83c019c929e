"""`Schedule`: everything a kernel needs to know beyond the plan, as a composition of parts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from gett.hw.archs import ARCHS
from gett.ir.tensors import PRECISIONS
from gett.schedule.spec.epilogue import Epilogue
from gett.schedule.spec.mainloop import AnyMainloop, Hopper, Mainloop, Multistage, Stream, WarpSpecialised
from gett.schedule.spec.packing import Packing
from gett.schedule.spec.scheduler import PARTS, TileScheduler
from gett.schedule.spec.smem import SmemPlan
from gett.schedule.spec.tiling import Tiling
from layouts.domains import OneOf, Size, Span, Text

L = TypeVar("L", bound=AnyMainloop)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the cost model expects.

    Attributes:
        us: Microseconds.
        bound: What it thinks limits the kernel, e.g. `"DRAM"`.
        reason: Why this schedule, in one line.
    """

    us: Annotated[float, Span(0, math.inf)] = 0.0
    bound: Text = ""
    reason: Text = ""


@dataclass(frozen=True, slots=True)
class Schedule:
    """One way to run a plan on one architecture.

    Attributes:
        arch: Architecture that it is compiled for, e.g. `"sm_90a"`.
        tiling: What a block computes.
        mainloop: How tiles arrive and are multiplied.
        epilogue: How D is stored.
        scheduler: Which tiles a block makes.
        smem: Where the parts of shared memory lie.
        workspace_bytes: Device memory for partial sums and packed copies (0 without split-K and packing).
        forecast: What the cost model expects; schedules that differ in it alone are equal.
        precision: At which products are formed, where that is not the plan's; at least as accurate.
        packing: Copies of tensors, of which tiling, mainloop and epilogue make the product; None without any.
    """

    arch: Annotated[str, OneOf(tuple(ARCHS))]
    tiling: Tiling
    mainloop: Mainloop
    epilogue: Epilogue
    scheduler: TileScheduler
    smem: SmemPlan
    workspace_bytes: Size = 0
    forecast: Forecast = field(default=Forecast(), compare=False)
    precision: Annotated[str, OneOf(("", *PRECISIONS))] = ""
    packing: Packing | None = None

    @property
    def kind(self) -> str:
        """What multiplies, in two words at most, behind `packed` where it multiplies copies."""
        kind = self.mainloop.kind
        return kind if self.packing is None else f"packed {kind}"

    @property
    def split_k(self) -> int:
        """Slices of K."""
        return self.scheduler.split_k

    @property
    def shares(self) -> int:
        """Clusters among which stream-K divides tiles."""
        return self.scheduler.blocks // math.prod(self.scheduler.cluster)

    @property
    def adds_parts(self) -> bool:
        """Whether a second kernel adds partial tiles."""
        return self.split_k > 1 or self.scheduler.stream_k

    @property
    def cluster(self) -> tuple[int, int]:
        """Neighbouring tiles along M and along N whose blocks share operands."""
        return self.scheduler.cluster

    def partial_tiles(self, tiles: int) -> int:
        """Partial tiles in the workspace, of the `tiles` tiles of D."""
        return PARTS * self.scheduler.blocks if self.scheduler.stream_k else self.split_k * tiles * (self.split_k > 1)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.mainloop.threads

    @property
    def hopper(self) -> Hopper:
        """The main loop of a Hopper kernel."""
        assert isinstance(self.mainloop, WarpSpecialised)
        return self.mainloop

    @property
    def multistage(self) -> Multistage:
        """The main loop of a tiled kernel."""
        return self.loop(Multistage)

    @property
    def stream(self) -> Stream:
        """The main loop of a map or a sum."""
        assert isinstance(self.mainloop, Stream)
        return self.mainloop

    def loop(self, kind: type[L]) -> L:
        """The main loop, which is of a kind."""
        assert isinstance(self.mainloop, kind)
        return self.mainloop
