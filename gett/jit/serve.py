"""What a process of `workers` does, and the frames in which it is asked and answers.

A task names a row of `TASKS`; the module that does it is imported with the first such task. A frame is two lengths,
then JSON, then bytes; unlike a pickle, it cannot hold code. Knows neither plans nor caches.
"""

from __future__ import annotations

import json
import os
import signal
import struct
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from gett import errors
from gett.errors import CompileError
from gett.jit.compile import CompileResult, compile_uncached, tell_headers
from gett.jit.toolkit import Toolkit, tell_toolkit

TASKS = {"compile": "gett.jit.serve", "plan": "gett.runtime.by_workers"}
"""By its name in a frame, the module whose `answer` does a task. It takes the task's fields and gives a frame."""

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
    """What all tasks of a process share: compiler and headers of whoever asks, so that nothing is looked for."""
    paths = (toolkit.library, *(None if x is None else str(x) for x in (toolkit.builtins, toolkit.include)))
    return {"toolkit": [*paths, toolkit.fingerprint], "headers": dict(headers)}


def unpack_answer(frame: Frame) -> CompileResult:
    """What a process made of a kernel's text.

    Raises:
        ValueError: The frame holds no result.
    """
    fields, cubin = frame
    log = fields.get("log")
    if not isinstance(log, str):
        raise ValueError("a frame without a result")
    return CompileResult(cubin, log)


def unpack_error(frame: Frame) -> CompileError | None:
    """What the compiler found wrong; None where the frame holds a result.

    Raises:
        ValueError: The frame holds an error that no task has.
    """
    fields, _ = frame
    if "error" not in fields:
        return None
    message, kind = fields.get("message"), getattr(errors, str(fields["error"]), None)
    if isinstance(kind, type) and issubclass(kind, CompileError) and isinstance(message, str):
        return kind(message)
    raise ValueError("a frame that answers nothing")


def serve(channel: int, seconds: int) -> None:
    """Do what is asked until the channel ends.

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
    while True:
        try:
            task, _ = read_frame(read)
        except EOFError:
            return
        signal.alarm(seconds)
        if "toolkit" in task:
            library, builtins, include, fingerprint = task["toolkit"]
            tell_toolkit(Toolkit(library, builtins and Path(builtins), include and Path(include), fingerprint))
            tell_headers(task["headers"])
        reply = memoryview(_reply(task))
        while reply:
            reply = reply[os.write(channel, reply) :]


def answer(task: Mapping[str, Any]) -> Frame:
    """Compile one text."""
    found = compile_uncached(task["text"], task["arch"], **task["options"])
    return {"log": found.log}, found.cubin


def _reply(task: Mapping[str, Any]) -> bytes:
    try:
        return pack_frame(*import_module(TASKS[task["task"]]).answer(task))
    except CompileError as error:  # any other ends the process, and whoever asked tries for itself
        return pack_frame({"error": type(error).__name__, "message": error.args[0]})
