"""What NVRTC's log says: resources of each function, faults that make a kernel slow, the first errors.

Owns the wording of the log (NVRTC and ptxas 12 and 13 with `--ptxas-options=-v`). Pure text; compiles nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ERRORS_SHOWN = 5
_STATIC_SHARED_LIMIT = 48 * 1024  # bytes that a block may declare; more must be dynamic
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_FRONT_END = re.compile(r"\(\d+\): (catastrophic )?error")
_UNMET = re.compile(r"error: (template constraint not satisfied|no instance of)")
_NOTE = re.compile(r"^(gett/contract/\w+\.cuh)\((\d+)\): note ")
_NEEDED = re.compile(
    r"\{ (?:typename )?(?:(?P<struct>[A-Z]\w*)::|p\.)(?P<member>\w+).*?\}[^/]*(?:// (?P<meaning>.*))?$"
)
_ASKED = re.compile(r"concept is false for arguments \"<(?:\w+::)*(LoaderTraits[ABC])>\"")
_ASSEMBLER = re.compile(r"^(ptxas|nvrtc).*\b(error|fatal)\b")
_MISSING_HEADER = re.compile(r'(?:cannot|could not) open source file "(cuda_\w+\.h(?:pp)?|vector_types\.h)"')
# The words by which ptxas marks lost asynchrony, as in C7511, wgmma serialised. C7517 alone, a wait that ptxas inserts
# before accumulators are read, does not carry them: a correct pipeline may get one.
_SLOW = re.compile(r"Potential Performance Loss|instructions are serialized")


@dataclass(frozen=True, slots=True)
class Usage:
    """What ptxas reports of one function.

    Attributes:
        registers: A thread's.
        frame_bytes: Local memory of the frame, a thread's.
        spill_stores, spill_loads: Bytes that move between registers and local memory because registers ran out.
        shared_bytes: Static shared memory, a block's.
    """

    registers: int = 0
    frame_bytes: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared_bytes: int = 0

    @property
    def spills(self) -> bool:
        """Whether registers ran out."""
        return self.spilled_bytes > 0

    @property
    def spilled_bytes(self) -> int:
        """Bytes that a thread moves to local memory, or back if these are more."""
        return max(self.spill_stores, self.spill_loads)


def read_usage(log: str) -> dict[str, Usage]:
    """Return the usage of each function that `log` reports: entries, and device functions that were not inlined."""
    frames: dict[str, tuple[int, int, int]] = {}
    used: dict[str, tuple[int, int]] = {}
    entry, function = "", ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry = match[1]
        elif match := _PROPERTIES.search(line):
            function = match[1]
        elif match := _FRAME.search(line):
            frames[function] = (int(match[1]), int(match[2]), int(match[3]))
        elif match := _USED.search(line):
            shared = _SHARED.search(line)
            used[entry] = (int(match[1]), int(shared[1]) if shared is not None else 0)
    result = {}
    for name in {**frames, **used}:
        registers, shared_bytes = used.get(name, (0, 0))
        result[name] = Usage(registers, *frames.get(name, (0, 0, 0)), shared_bytes)
    return result


def find_faults(log: str, spilled_bytes: int = 0) -> list[str]:
    """Return a line for each spill and each loss of asynchrony that `log` reports; empty for a good kernel.

    Spills of no more than `spilled_bytes` a thread are let pass.
    """
    faults = [
        f"'{name}' spills registers: {usage.spill_stores} bytes stored, {usage.spill_loads} bytes loaded, "
        f"a stack frame of {usage.frame_bytes} bytes at {usage.registers} registers"
        for name, usage in read_usage(log).items()
        if usage.spilled_bytes > spilled_bytes
    ]
    faults += [line.strip() for line in log.splitlines() if _SLOW.search(line)]
    return faults


def spills(log: str) -> bool:
    """Return whether registers of any function ran out."""
    return any(usage.spills for usage in read_usage(log).values())


def is_serialised(log: str) -> bool:
    """Return whether ptxas waits for each product of wgmma by itself."""
    return _SLOW.search(log) is not None


def first_errors(log: str) -> str:
    """Return the first errors of `log` with their line numbers and source lines; the log's end if it marks none."""
    lines = log.splitlines()
    errors: list[str] = []
    for index, line in enumerate(lines):
        if _FRONT_END.search(line):
            errors.append("\n".join(part.rstrip() for part in lines[index : index + 3] if part.strip()))
        elif _ASSEMBLER.search(line):
            errors.append(line.rstrip())
    if errors:
        more = len(errors) - _ERRORS_SHOWN
        shown = errors[:_ERRORS_SHOWN] + ([f"... and {more} more"] if more > 0 else [])
        return "\n".join(shown)
    too_large = [
        f"'{name}' declares {usage.shared_bytes} bytes of static shared memory; a block may have {_STATIC_SHARED_LIMIT}"
        for name, usage in read_usage(log).items()
        if usage.shared_bytes > _STATIC_SHARED_LIMIT
    ]
    return "\n".join(too_large or [line for line in lines if line.strip()][-2 * _ERRORS_SHOWN :])


def lacking(log: str) -> str | None:
    """Return the line that says what a generated text lacks of its contract with the headers, if `log` does.

    The notes of such an error end in a line of `gett/kernels/contract`, which names a member and says what it is.
    """
    lines = log.splitlines()
    for start, line in enumerate(lines):
        if not _UNMET.search(line):
            continue
        end = next((i for i in range(start + 1, len(lines)) if _FRONT_END.search(lines[i])), len(lines))
        notes = [(i, match) for i in range(start + 1, end - 1) if (match := _NOTE.search(lines[i])) is not None]
        found = _NEEDED.search(lines[notes[-1][0] + 1]) if notes else None
        if found is not None:
            struct, member, meaning = found["struct"] or "Params", found["member"], found["meaning"]
            asked = _ASKED.findall("\n".join(lines[start:end]))
            if struct == "LoaderTraits" and asked:  # of A or of B
                struct = asked[-1]
            place = notes[-1][1]
            return (
                f"the text lacks {struct}::{member}{f' ({meaning})' if meaning else ''}, or has it in another form; "
                f"needed for: {lines[start + 1].strip()} [{place[1]}, line {place[2]}]"
            )
    return None


def missing_header(log: str) -> str | None:
    """Return the name of the CUDA header that could not be found, if that is what went wrong."""
    match = _MISSING_HEADER.search(log)
    return match[1] if match is not None else None
