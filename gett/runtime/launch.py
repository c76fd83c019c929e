"""The arguments of a kernel's launches in one block of host memory, with slots that each call fills in.

Owns the layout of that block: a launch configuration, the argument array and the parameter struct of each launch.
Everything that a plan fixes is written once; a call writes addresses, the stream and, when they change, alpha and beta.
The driver copies the parameters while it launches, so the block is free again when the launch returns.

Knows neither CuPy nor plans. A block is not thread-safe; its user holds a lock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import numpy as np

from gett.codegen.records import Kernel
from gett.errors import DTypeError, OptionError
from gett.runtime.driver import ATTRIBUTE_PROGRAMMATIC_SERIALIZATION, DriverApi, LaunchAttribute, LaunchConfig
from gett.runtime.tensormap import MAP_BYTES, TensorMap

ROLES = ("a", "b", "c", "d", "workspace")
_ALIGN = 128  # of every struct; tensor maps need 64


class ArgumentBlock:
    """Arguments of all launches of one kernel.

    Args:
        driver: For tensor maps.
        kernel: The launches; those with an empty grid have nothing to do and are left out.
        functions: Function handle of each entry.

    Attributes:
        words: The block as 64-bit words, for writing addresses.
        pointers: For each role, the words that take its address.
        streams: The words that take the stream.
        maps: (role, tensor map).
        moved: (role, bytes behind its address, word or tensor map) of what takes an address inside a tensor.
        calls: Arguments of `driver.launch`, one tuple a launch, in stream order.
        entries: What each call launches, for error texts.
    """

    __slots__ = (
        "_memory",
        "_scalars",
        "calls",
        "entries",
        "maps",
        "moved",
        "pointers",
        "streams",
        "words",
    )

    def __init__(self, driver: DriverApi, kernel: Kernel, functions: Mapping[str, int]) -> None:
        launches = [launch for launch in kernel.launches if 0 not in launch.grid]
        # Per launch: the struct, the configuration, the array of one argument pointer, one attribute.
        config_at = [_round_up(len(launch.params), 16) for launch in launches]
        argv_at = [at + _round_up(ctypes.sizeof(LaunchConfig), 16) for at in config_at]
        sizes = [_round_up(at + 8 + ctypes.sizeof(LaunchAttribute), _ALIGN) for at in argv_at]
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        raw = bytearray(sum(sizes) + _ALIGN)
        address = ctypes.addressof((ctypes.c_char * len(raw)).from_buffer(raw))
        skip = -address % _ALIGN
        base = address + skip
        self._memory = memoryview(raw)[skip : skip + sum(sizes)]  # keeps `raw` alive and in place
        self.words = self._memory.cast("Q")

        extras = {role for launch in launches for role, _ in launch.pointers} - {*ROLES}
        pointers: dict[str, list[int]] = {role: [] for role in (*ROLES, *extras)}
        streams, maps, calls, entries = [], [], [], []
        moved: list[tuple[str, int, int | TensorMap]] = []
        self._scalars: dict[str, list[tuple[int, np.dtype[np.generic]]]] = {"alpha": [], "beta": []}
        for launch, start, config, argv in zip(launches, starts, config_at, argv_at, strict=True):
            self._memory[start : start + len(launch.params)] = launch.params
            attribute = base + start + argv + 8 if kernel.overlaps else None
            record = LaunchConfig(*launch.grid, *launch.block, launch.smem_bytes, None, attribute, int(kernel.overlaps))
            if kernel.overlaps:
                value = bytes(LaunchAttribute(ATTRIBUTE_PROGRAMMATIC_SERIALIZATION, 0, 1))
                self._memory[start + argv + 8 : start + argv + 8 + len(value)] = value
            self._memory[start + config : start + config + ctypes.sizeof(record)] = bytes(record)
            streams.append((start + config + LaunchConfig.stream.offset) // 8)
            self.words[(start + argv) // 8] = base + start
            places = {role: (base_role, shift) for role, base_role, shift in launch.moved}
            for role, offset in launch.pointers:
                assert offset % 8 == 0, f"{launch.entry}: pointer {role} at {offset}"
                assert offset + 8 <= len(launch.params), f"{launch.entry}: pointer {role} at {offset}"
                if role in places:
                    moved.append((*places[role], (start + offset) // 8))
                else:
                    pointers[role].append((start + offset) // 8)
            for name, offset, dtype in launch.scalars:
                assert offset + np.dtype(dtype).itemsize <= len(launch.params), f"{launch.entry}: scalar {name}"
                self._scalars[name].append((start + offset, np.dtype(dtype)))
            for role, offset, spec in launch.maps:
                assert offset + MAP_BYTES <= len(launch.params), f"{launch.entry}: tensor map {role} at {offset}"
                made = TensorMap(driver, spec, base + start + offset, role)
                if role in places:
                    moved.append((*places[role], made))
                else:
                    maps.append((role, made))
            handles = (base + start + config, functions[launch.entry], base + start + argv)
            calls.append((*map(ctypes.c_void_p, handles), None))
            entries.append(
                f"kernel {launch.entry}, grid {launch.grid}, block {launch.block}, {launch.smem_bytes} bytes of "
                "shared memory"
            )
        self.pointers = {role: tuple(words) for role, words in pointers.items()}
        self.streams, self.maps, self.calls, self.entries = tuple(streams), tuple(maps), tuple(calls), tuple(entries)
        self.moved = tuple(moved)

    def write_scalar(self, name: str, value: complex) -> None:
        """Write `"alpha"` or `"beta"` in each launch's dtype for it.

        Raises:
            DTypeError: A complex value for a real kernel, or no number at all.
            OptionError: An integer that the dtype cannot hold.
        """
        packed = [(offset, _pack(name, value, dtype)) for offset, dtype in self._scalars[name]]
        for offset, data in packed:
            self._memory[offset : offset + len(data)] = data


def _pack(name: str, value: complex, dtype: np.dtype[np.generic]) -> bytes:
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.item()  # NumPy's own scalars would drop an imaginary part or wrap around without an error
    try:
        if dtype.kind in "iu" and isinstance(value, float) and not value.is_integer():
            raise TypeError(f"{value} is no integer")
        packed = np.array(value, dtype)
        if packed.ndim:
            raise TypeError("not a scalar")
    except OverflowError as error:
        raise OptionError(f"{name}={value!r} does not fit {dtype.name}") from error
    except (TypeError, ValueError) as error:
        raise DTypeError(f"{name}={value!r} cannot be used as {dtype.name}") from error
    return packed.tobytes()


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
