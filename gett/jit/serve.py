"""What a compiling process does, and the frames in which it is asked and answers.

Such a process imports this module with what compiles, and nothing else: its first answer waits for every import. A
frame is two lengths, then JSON, then bytes; unlike a pickle, it cannot hold code. Knows neither plans nor caches.
"""

from __future__ import annotations

import json
import os
import signal
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gett import errors
from gett.errors import CompileError
from gett.jit.compile import CompileResult, compile_uncached
from gett.jit.toolkit import Toolkit

_LENGTHS = struct.Struct("<QQ")
_MOST = 1 << 30  # bytes; what is longer is no frame

Frame = tuple[dict[str, Any], bytes]


def pack_frame(fields: Mapping[str, Any], data: bytes = b"") -> bytes:
    """The bytes of a frame."""
    text = json.dumps(fields).encode()
    return _LENGTHS.pack(len(text), len(data)) + text + data


def read_frame(read: Callable[[int], bytes]) -> Frame:
    """The next frame.

    Args:
        read: Gives as many bytes as it is asked for.

    Raises:
        ValueError: What is read is no frame.
    """
    size, more = _LENGTHS.unpack(read(_LENGTHS.size))
    if max(size, more) > _MOST:
        raise ValueError(f"a frame of {size} and {more} bytes")
    fields = json.loads(read(size))
    if not isinstance(fields, dict):
        raise ValueError("a frame without fields")
    return fields, read(more)


def setting(toolkit: Toolkit, headers: Mapping[str, str]) -> dict[str, Any]:
    """What all kernels of a process share: compiler and headers of whoever asks, so that nothing is looked for."""
    paths = (toolkit.library, *(None if x is None else str(x) for x in (toolkit.builtins, toolkit.include)))
    return {"toolkit": [*paths, toolkit.fingerprint], "headers": dict(headers)}


def unpack_answer(frame: Frame) -> CompileResult | CompileError:
    """What a process made of a kernel.

    Raises:
        ValueError: The frame holds neither a result nor what the compiler found wrong.
    """
    fields, cubin = frame
    log, message = fields.get("log"), fields.get("message")
    kind = getattr(errors, str(fields.get("error")), None)
    if isinstance(log, str):
        return CompileResult(cubin, log)
    if isinstance(kind, type) and issubclass(kind, CompileError) and isinstance(message, str):
        return kind(message)
    raise ValueError("a frame that answers nothing")


def serve(channel: int, seconds: int) -> None:
    """Compile what is asked until the channel ends.

    Args:
        channel: File descriptor of a socket.
        seconds: So long after it was last asked the process ends, whatever it does: nobody may be left who waits.
    """

    def read(count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = os.read(channel, min(count - len(data), 1 << 20))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    signal.alarm(seconds)
    shared: dict[str, Any] = {}
    while True:
        try:
            task, _ = read_frame(read)
        except EOFError:
            return
        signal.alarm(seconds)
        if "toolkit" in task:
            library, builtins, include, fingerprint = task["toolkit"]
            toolkit = Toolkit(library, builtins and Path(builtins), include and Path(include), fingerprint)
            shared = {"toolkit": toolkit, "headers": task["headers"]}
        answer = memoryview(_answer(task, shared))
        while answer:
            answer = answer[os.write(channel, answer) :]


def _answer(task: Mapping[str, Any], shared: Mapping[str, Any]) -> bytes:
    try:
        found = compile_uncached(task["text"], task["arch"], **(shared | task["options"]))
    except CompileError as error:  # any other ends the process, and whoever asked tries for itself
        return pack_frame({"error": type(error).__name__, "message": error.args[0]})
    return pack_frame({"log": found.log}, found.cubin)
