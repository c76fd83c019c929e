"""`torch.compile` around calls of this package: its tracer, TorchDynamo, reads stand-ins or stays outside of them.

Plans, caches and launches are no operations that a graph could hold, and NumPy's calls on the way are not what
TorchDynamo takes them for. `torch.compiler.disable` would keep it out in a wrapper that takes a microsecond a call.
Here marks do it that TorchDynamo looks for on functions: PyTorch is not imported, and calls that nobody traces pay
nothing. Knows no arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any, NoReturn, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])
_PACKAGES = ("gett", "layouts")
_WHY = "gett plans and launches kernels of its own: torch.compile breaks the graph around this call"


def untraced(function: _F) -> _F:
    """Mark a public function, which a traced caller then calls between two graphs.

    TorchDynamo tries the function's own frame next, and gives it up at the first function that `leaves_tracing` marks.
    """
    vars(function).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=_WHY)
    return function


def traced_as(stand_in: _F) -> Callable[[_F], _F]:
    """Mark a public function, in whose place TorchDynamo reads another one."""

    def mark(function: _F) -> _F:
        vars(function).update(_torchdynamo_inline=stand_in)
        return function

    return mark


def constant(function: _F) -> _F:
    """Mark a function of numbers and texts that TorchDynamo calls while it traces, and whose result it keeps."""
    vars(function).update(_dynamo_marked_constant=True)
    return function


def leaves_tracing(function: _F) -> _F:
    """Mark a function without arguments that public functions call early: to TorchDynamo it is `_leave`."""
    vars(function).update(_torchdynamo_inline=_leave, _dynamo_marked_constant=True)
    return function


def _leave() -> NoReturn:
    """Run while TorchDynamo traces a frame of this package: it runs all of them as they are from now on."""
    frames, types = import_module("torch._dynamo.eval_frame"), import_module("torch._dynamo.types")
    if hasattr(frames, "set_code_exec_strategy"):
        skip = types.FrameExecStrategy(types.FrameAction.SKIP, types.FrameAction.SKIP)  # the frame, and all it calls
        for code in _code():
            frames.set_code_exec_strategy(code, skip)
    else:  # an older PyTorch, which still tries the frames of others that this package calls
        for name in _PACKAGES:
            import_module("torch._dynamo.trace_rules").add(name)
    raise import_module("torch._dynamo.exc").SkipFrame(_WHY)


def _code() -> Iterator[CodeType]:
    """The code of each function and method of this package's modules that are loaded."""
    modules = [m for name, m in [*sys.modules.items()] if name.partition(".")[0] in _PACKAGES]
    for module in modules:
        for thing in [*vars(module).values()]:
            for found in [thing, *vars(thing).values()] if isinstance(thing, type) else [thing]:
                if isinstance(found, FunctionType) and found.__module__ == module.__name__:
                    yield found.__code__


vars(_leave).update(_dynamo_marked_constant=True)
