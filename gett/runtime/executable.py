"""Executables: a compiled plan, bound to a device, that is called with arrays.

Owns the call itself, whose host time matters: nothing is allocated or looked up that a plan fixes.
Knows CuPy only through `gett.runtime.device.Host`.

In a CUDA graph's capture a call records its launches like any other: nothing waits and, without a workspace, nothing is
allocated. The workspace of a captured call is never given back to the pool, since the graph writes to it at every
replay. It lives as long as the executable does, so the plan must outlive the graph.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from gett.codegen.records import Kernel
from gett.errors import DeviceError, OptionError
from gett.hw.archs import ArchFacts
from gett.ir.gemm import GemmPlan
from gett.runtime.device import Host, Memory, Stream
from gett.runtime.driver import ERROR_INVALID_CONTEXT, DriverApi
from gett.runtime.launch import ArgumentBlock
from gett.runtime.modules import load_module
from gett.schedule.spec.schedule import Schedule

Addresses = tuple[int, int, int, int]
"""Of a, b, c and d; 0 for a tensor that a plan has not."""


class GpuExecutable:
    """A plan, compiled and loaded on one device. Calls are asynchronous, on CuPy's current stream, and thread-safe.

    Attributes:
        plan: What it computes.
        schedule: How.
        kernel: The generated source and launches.
        workspace_bytes: Device memory that a call takes from CuPy's pool and returns.
        device: Device number; operands live there.
        measured: (microseconds, among how many schedules) where the schedule was found by measuring, else None.
    """

    __slots__ = (
        "__weakref__",
        "_a",
        "_alpha",
        "_b",
        "_beta",
        "_block",
        "_c",
        "_calls",
        "_captured",
        "_check_device",
        "_context",
        "_current_stream",
        "_d",
        "_driver",
        "_extras",
        "_has_b",
        "_has_c",
        "_host",
        "_launch",
        "_lock",
        "_maps",
        "_module",
        "_moved",
        "_streams",
        "_swapped",
        "_words",
        "_workspace",
        "device",
        "kernel",
        "measured",
        "plan",
        "schedule",
        "workspace_bytes",
    )

    def __init__(
        self,
        plan: GemmPlan,
        schedule: Schedule | None,
        kernel: Kernel,
        cubin: bytes,
        host: Host,
        driver: DriverApi,
        facts: ArchFacts | None = None,
    ) -> None:
        self.plan, self.schedule, self.kernel = plan, schedule, kernel
        self.workspace_bytes = kernel.workspace_bytes
        self.measured: tuple[float, int] | None = None
        self.device = host.current_device()
        host.bind_context(self.device)
        self._context = driver.current_context()
        if not self._context:
            raise DeviceError(f"GPU {self.device} has no CUDA context")
        self._host, self._driver = host, driver
        self._module = load_module(driver, self.device, cubin)
        self._module.users.add(self)
        needed = {entry: 0 for entry in kernel.source.entries}
        for launch in kernel.launches:
            needed[launch.entry] = max(needed[launch.entry], launch.smem_bytes)
        functions = {entry: self._module.function(entry, smem) for entry, smem in needed.items()}
        if facts is not None:
            for launch in kernel.launches:
                self._module.divide(launch, facts)

        block = self._block = ArgumentBlock(driver, kernel, functions)
        self._words, self._calls, self._streams, self._maps = block.words, block.calls, block.streams, block.maps
        self._moved = block.moved
        self._a, self._b, self._c = (block.pointers[role] for role in "abc")
        self._d, self._workspace = block.pointers["d"], block.pointers["workspace"]
        extras = range(len(plan.contraction.extras))
        self._extras = tuple(block.pointers.get(f"x{i}", ()) for i in extras)
        self._swapped = plan.swapped
        self._has_b, self._has_c = plan.contraction.b is not None, plan.contraction.c is not None
        self._launch, self._current_stream = driver.launch, host.current_stream
        self._check_device = host.device_count() > 1
        self._lock = threading.Lock()
        self._captured: list[Memory] = []
        self._alpha: complex = 1
        self._beta: complex = 0
        block.write_scalar("alpha", 1)
        block.write_scalar("beta", 0)

    def __call__(
        self, a: Any, b: Any, c: Any, d: Any, alpha: complex = 1, beta: complex = 0, extras: Sequence[Any] = ()
    ) -> None:
        """Launch `d = alpha * a * b + beta * c`, and the plan's epilogue of that, on the current stream.

        Args:
            a: The user's first operand, a CuPy array with the shape, strides, dtype and alignment that were planned.
            b: The second, None for a contraction of one operand.
            c: The added operand, None when the plan has none.
            d: The result, written in place in its own strides.
            alpha: Factor of the product.
            beta: Factor of `c`; with 0 `c` is not read.
            extras: The tensors that the plan's epilogue reads, laid out as planned.

        Raises:
            OptionError: An operand is missing or too many.
            DTypeError: alpha or beta does not fit the kernel's dtype.
            OutOfMemoryError: No memory for the workspace.
            DeviceError: The launch failed.
        """
        if (b is None) is self._has_b or (c is None) is self._has_c or len(extras) != len(self._extras):
            raise self._wrong_operands(b, c, extras)
        if extras:
            extras = [x.data.ptr for x in extras]
        if self._check_device and self._host.current_device() != self.device:
            with self._host.use_device(self.device):
                return self._run(a, b, c, d, alpha, beta, extras)
        return self._run(a, b, c, d, alpha, beta, extras)

    def _run(self, a: Any, b: Any, c: Any, d: Any, alpha: complex, beta: complex, extras: Sequence[int]) -> None:
        stream = self._current_stream()
        memory = self._take_workspace(stream) if self.workspace_bytes else None
        self._start(
            a.data.ptr,
            0 if b is None else b.data.ptr,
            0 if c is None else c.data.ptr,
            d.data.ptr,
            stream.ptr,
            0 if memory is None else memory.ptr,
            alpha,
            beta,
            extras,
        )

    def run_at(
        self,
        a: int,
        b: int,
        c: int,
        d: int,
        stream: int,
        workspace: int,
        alpha: complex = 1,
        beta: complex = 0,
        extras: Sequence[int] = (),
    ) -> None:
        """Launch as a call does, on addresses of any origin; 0 stands for an operand that the plan has not.

        Args:
            a: Address of the first operand's element at coordinate 0, laid out and aligned as planned.
            b: Of the second.
            c: Of the added operand.
            d: Of the result.
            stream: Handle of a stream of this executable's device, 0 for the default one.
            workspace: Address of `workspace_bytes` bytes that nothing else uses until the stream has run the launches;
                0 where the plan needs none.
            alpha: Factor of the product.
            beta: Factor of `c`.
            extras: Of the tensors that the plan's epilogue reads.

        Raises:
            DTypeError: alpha or beta does not fit the kernel's dtype.
            DeviceError: The launch failed.
        """
        assert workspace or not self.workspace_bytes, "kernels that split K or pack tensors write to the workspace"
        if self._check_device and self._host.current_device() != self.device:
            with self._host.use_device(self.device):
                return self._start(a, b, c, d, stream, workspace, alpha, beta, extras)
        return self._start(a, b, c, d, stream, workspace, alpha, beta, extras)

    def _start(
        self,
        a: int,
        b: int,
        c: int,
        d: int,
        stream: int,
        workspace: int,
        alpha: complex,
        beta: complex,
        extras: Sequence[int],
    ) -> None:
        with self._lock:
            self._fill(a, b, c, d, stream, workspace, alpha, beta, extras)
            for call in self._calls:
                code = self._launch(*call)
                if code:
                    self._retry(code, call)

    def record(
        self,
        recorder: Any,
        addresses: Addresses,
        workspace: int,
        alpha: complex = 1,
        beta: complex = 0,
        extras: Sequence[int] = (),
    ) -> int:
        """Launch into a graph; how many launches that are.

        Args:
            recorder: A `gett.runtime.graphs.Recorder`.
            addresses: As `run_at` takes them: a, b, c, d.
            workspace: As `run_at` takes it, as the others.
            alpha: Factor of the product.
            beta: Factor of `c`.
            extras: Of the tensors that the plan's epilogue reads.

        Raises:
            DeviceError: A launch failed.
        """
        with self._lock:
            self._fill(*addresses, recorder.stream, workspace, alpha, beta, extras)
            for call, entry in zip(self._calls, self._block.entries, strict=True):
                recorder.launch(call, f"{entry}, GPU {self.device}")
        return len(self._calls)

    def change(
        self,
        graph: Any,
        numbers: Sequence[int],
        addresses: Addresses,
        workspace: int,
        alpha: complex = 1,
        beta: complex = 0,
        extras: Sequence[int] = (),
    ) -> bool:
        """Give launches of a `gett.runtime.graphs.LaunchGraph` other arguments; whether the driver took them."""
        with self._lock:
            self._fill(*addresses, 0, workspace, alpha, beta, extras)
            for number in numbers:
                if graph.change(number):
                    return False
        return True

    def _fill(
        self,
        a: int,
        b: int,
        c: int,
        d: int,
        stream: int,
        workspace: int,
        alpha: complex,
        beta: complex,
        extras: Sequence[int],
    ) -> None:
        """Write the arguments of all launches; the lock is held."""
        if self._swapped:
            a, b = b, a
        words = self._words
        for word in self._a:
            words[word] = a
        for word in self._b:
            words[word] = b
        for word in self._c:
            words[word] = c
        for word in self._d:
            words[word] = d
        for word in self._streams:
            words[word] = stream
        if workspace:
            for word in self._workspace:
                words[word] = workspace
        if extras:
            for slots, address in zip(self._extras, extras, strict=True):
                for word in slots:
                    words[word] = address
        if alpha != self._alpha:
            self._block.write_scalar("alpha", alpha)
            self._alpha = alpha
        if beta != self._beta:
            self._block.write_scalar("beta", beta)
            self._beta = beta
        if self._maps:
            addresses = {"a": a, "b": b, "c": c, "d": d}
            for role, tensor_map in self._maps:
                tensor_map.point_at(addresses[role])
        if self._moved:
            self._point_inside({"a": a, "b": b, "c": c, "d": d, "workspace": workspace})

    def _point_inside(self, addresses: dict[str, int]) -> None:
        """Write the addresses that lie inside of tensors and of the workspace."""
        for role, shift, place in self._moved:
            address = addresses[role] + shift
            if isinstance(place, int):
                self._words[place] = address
            else:
                place.point_at(address)

    def _take_workspace(self, stream: Stream) -> Memory:
        memory = self._host.allocate(self.workspace_bytes)
        if stream.is_capturing():
            self._captured.append(memory)
        return memory

    def _retry(self, code: int, call: tuple[Any, ...]) -> None:
        """Launch again in a thread that had no context yet; any other failure is an error."""
        if code == ERROR_INVALID_CONTEXT:
            self._driver.set_context(self._context)
            code = self._launch(*call)
        if code:
            entry = self._block.entries[self._calls.index(call)]
            raise self._driver.error(code, "cuLaunchKernelEx", f"{entry}, GPU {self.device}")

    def _wrong_operands(self, b: Any, c: Any, extras: Sequence[Any]) -> OptionError:
        if len(extras) != len(self._extras):
            return OptionError(f"the plan's epilogue reads {len(self._extras)} tensors, {len(extras)} are given")
        if (b is None) is self._has_b:
            return OptionError(f"the plan takes {'two operands, b is missing' if self._has_b else 'no second operand'}")
        return OptionError(f"the plan {'adds C, but c is missing' if self._has_c else 'adds no C, but c is given'}")
