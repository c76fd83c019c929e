"""Plans that other processes search and compile: searching in the threads of one process is done one after the other.

Owns what goes to a process of `gett.jit.workers` and what comes back, and the process's side of it. The kernel enters
this process's cache, and what was logged there is logged here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gett.hw.archs import ArchFacts, arch_facts
from gett.ir.gemm import GemmPlan
from gett.jit.codec import Stale, decode, encode
from gett.jit.compile import kernel_key
from gett.jit.diskcache import kernel_cache
from gett.runtime.compiled import CompiledKernel, compile_best

if TYPE_CHECKING:
    from gett.jit.serve import Frame
    from gett.jit.workers import Workers

_log = logging.getLogger("gett")
_Lines = tuple[tuple[int, str], ...]  # level and text


def compile_by(processes: Workers | None, plan: GemmPlan, arch: str, facts: ArchFacts | None = None) -> CompiledKernel:
    """The kernel that `compile_best` finds in another process, or in this one where none answers.

    Args:
        processes: Who is asked; None for this process.
        plan: What to compute.
        arch: Such as `"sm_90a"`.
        facts: Of the GPU at hand; the architecture's nominal ones by default.

    Raises:
        GettError: As `compile_best`; CompileError also where the processes were ended meanwhile.
    """
    if processes is None:
        return compile_best(plan, arch, facts)
    task = {"task": "plan", "plan": encode(plan), "arch": arch, "facts": encode(facts or arch_facts(arch))}
    answer = processes.ask(task, _unpack)
    if answer is None:
        return compile_best(plan, arch, facts, alone=True)
    made, lines = answer
    for level, text in lines:
        _log.log(level, "%s", text)
    key = kernel_key(made.kernel.source, made.kernel.arch, allow_spills=made.spills)
    kernel_cache().get_or_build(key, lambda: made.cubin)
    return made


def answer(task: Mapping[str, Any]) -> Frame:
    """What a process makes of a task of `compile_by`."""
    said = _Said()
    _log.addHandler(said)
    _log.setLevel(logging.DEBUG)
    _log.propagate = False
    try:
        made = compile_best(decode(GemmPlan, task["plan"]), task["arch"], decode(ArchFacts, task["facts"]), alone=True)
    finally:
        _log.removeHandler(said)
    return {"made": encode(replace(made, cubin=b"")), "lines": said.lines}, made.cubin


def _unpack(frame: Frame) -> tuple[CompiledKernel, _Lines]:
    fields, cubin = frame
    try:
        made = decode(CompiledKernel, fields.get("made"))
        lines = decode(_Lines, fields.get("lines"))
    except Stale as error:
        raise ValueError(str(error)) from error
    return replace(made, cubin=cubin), lines


class _Said(logging.Handler):
    """What is logged, with its level."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelno, record.getMessage()))
