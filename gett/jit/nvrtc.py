"""NVRTC through ctypes: text in, cubin and log out. Needs neither CuPy nor a GPU.

Owns the loaded library and the C calls (NVRTC documentation, "User Interface"). What a good kernel is, and where a
cubin is kept, is not known here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gett.errors import INSTALL_GPU, CompileError, MissingPackageError
from gett.jit.toolkit import Toolkit

_BUILTIN_OPERATION_FAILURE = 7


@dataclass(frozen=True, slots=True)
class Outcome:
    """What NVRTC made of one program.

    Attributes:
        error: NVRTC's name of the error; empty on success.
        log: Everything that the front end and ptxas said.
        cubin: Empty on failure.
        ptx: What ptxas made it of; empty on failure.
    """

    error: str
    log: str
    cubin: bytes
    ptx: str


class Nvrtc:
    """A loaded NVRTC library. Safe to call from many threads; the interpreter lock is free while it compiles."""

    def __init__(self, toolkit: Toolkit) -> None:
        try:
            # NVRTC opens its companion by name only; once loaded by path it is found under that name.
            if toolkit.builtins is not None:
                ctypes.CDLL(str(toolkit.builtins))
            self._lib = ctypes.CDLL(toolkit.library)
        except OSError as error:
            raise MissingPackageError(f"NVRTC cannot be loaded ({error}); {INSTALL_GPU}") from error
        self._lib.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
        self.version: tuple[int, int] = (major.value, minor.value)
        count = ctypes.c_int()
        self._check(self._lib.nvrtcGetNumSupportedArchs(ctypes.byref(count)), "nvrtcGetNumSupportedArchs")
        numbers = (ctypes.c_int * count.value)()
        self._check(self._lib.nvrtcGetSupportedArchs(numbers), "nvrtcGetSupportedArchs")
        self.architectures: tuple[int, ...] = tuple(numbers)

    def compile(self, text: str, name: str, headers: Mapping[str, str], options: Sequence[str]) -> Outcome:
        """Compile one translation unit.

        Args:
            text: CUDA C++.
            name: File name under which the log speaks of `text`.
            headers: Contents by the name that `#include` uses.
            options: NVRTC's options.
        """
        program = ctypes.c_void_p()
        names, contents = _strings(list(headers.keys())), _strings(list(headers.values()))
        self._check(
            self._lib.nvrtcCreateProgram(
                ctypes.byref(program), text.encode(), name.encode(), len(headers), contents, names
            ),
            "nvrtcCreateProgram",
        )
        try:
            code: int = self._lib.nvrtcCompileProgram(program, len(options), _strings(options))
            log = self._read(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")
            message = log.rstrip(b"\0").decode(errors="replace")
            if code == _BUILTIN_OPERATION_FAILURE:
                raise MissingPackageError(f"NVRTC is incomplete: {message.strip()}; install it again: {INSTALL_GPU}")
            cubin = self._read(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN") if code == 0 else b""
            ptx = self._read(program, "nvrtcGetPTXSize", "nvrtcGetPTX") if code == 0 else b""
        finally:
            self._lib.nvrtcDestroyProgram(ctypes.byref(program))
        return Outcome(self._name(code) if code else "", message, cubin, ptx.rstrip(b"\0").decode())

    def _read(self, program: ctypes.c_void_p, size_call: str, data_call: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._lib, size_call)(program, ctypes.byref(size)), size_call)
        buffer = ctypes.create_string_buffer(max(size.value, 1))
        self._check(getattr(self._lib, data_call)(program, buffer), data_call)
        return buffer.raw[: size.value]

    def _check(self, code: int, call: str) -> None:
        if code:
            raise CompileError(f"{call} failed: {self._name(code)}")

    def _name(self, code: int) -> str:
        text: bytes = self._lib.nvrtcGetErrorString(code)
        return text.decode()


@lru_cache(maxsize=4)
def load_nvrtc(toolkit: Toolkit) -> Nvrtc:
    """Return the library of `toolkit`, loaded once a process.

    Raises:
        MissingPackageError: The library or its companion cannot be loaded.
    """
    return Nvrtc(toolkit)


def _strings(texts: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))
