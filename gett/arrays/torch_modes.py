"""What PyTorch does around a call: whether it records derivatives, transforms the call, or traces it.

Owns these questions, which each call asks first, so that they are cheap. Knows tensors, but neither layouts nor plans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

from gett.errors import GradientError

HOLD_NO_VALUES = ("FakeTensor", "FunctionalTensor")
"""Classes of tensors that PyTorch traces with."""


def _no_level() -> None:
    """What stands for the level of `torch.func` where there is none."""


def _never(_: Any) -> bool:
    """What stands for a question about tensors that PyTorch does not know."""
    return False


class _NoDuals:
    """What stands for `torch.autograd.forward_ad` where there is none."""

    _current_level = -1


class TorchModes:
    """What PyTorch records, transforms and traces now.

    Args:
        module: `torch`.
        plain: Classes whose instances are what they seem.

    Attributes:
        recording: Whether derivatives of tensors that require gradients are recorded now.
        dual_levels: What has the current level of forward mode, -1 for none.
        dispatch_modes: How many modes see every operator now.
    """

    def __init__(self, module: Any, plain: tuple[Any, ...]) -> None:
        self._tensor: Any = module.Tensor
        self._plain = plain
        self.recording: Callable[[], bool] = module.is_grad_enabled
        self.dual_levels: Any = getattr(getattr(module, "autograd", None), "forward_ad", None) or _NoDuals
        self._duals_count: Callable[[], bool] = getattr(module._C, "_is_fwd_grad_enabled", bool)
        self._transforms: Any = getattr(module._C, "_functorch", None)
        self._compiles: Callable[[], bool] = getattr(getattr(module, "compiler", None), "is_compiling", bool)
        self.dispatch_modes: Callable[[], int] = getattr(module._C, "_len_torch_dispatch_stack", int)
        self._level: Callable[[], int | None] = getattr(self._transforms, "maybe_current_level", _no_level)
        self._wraps: Callable[[Any], bool] = getattr(self._transforms, "is_functorch_wrapped_tensor", _never)

    def duals(self) -> bool:
        """Whether a level of forward mode is active."""
        return bool(self.dual_levels._current_level >= 0)

    def transforms(self) -> bool:
        """Whether a transformation of `torch.func` is active."""
        return self._level() is not None

    def records(self, things: Sequence[Any]) -> bool:
        """Whether PyTorch records derivatives of some of the arguments of a call, or transforms or traces the call."""
        if self._level() is not None or self.dispatch_modes():
            return any(isinstance(x, self._tensor) for x in things)
        recording, plain = self.recording(), self._plain
        for x in things:
            if x.__class__ in plain:
                if x.is_meta or (recording and x.requires_grad):
                    return True
            elif x is not None and isinstance(x, self._tensor) and (x.requires_grad or self._holds_none(x)):
                return True
        return self.duals() and any(map(self._is_dual, things))

    def wraps(self, things: Sequence[Any]) -> bool:
        """Whether some tensors are those of a transformation of `torch.func`.

        A backward on a GPU runs in a thread of its own, in which no transformation is active.
        """
        return any(x is not None and self._wraps(x) for x in things)

    def is_plain(self, tensors: Sequence[Any]) -> bool:
        """Whether derivatives of some tensors are recorded for reverse mode alone: nothing is transformed or traced."""
        if self._level() is not None or self.duals() or self.wraps(tensors):
            return False
        return not self._are_traced(tensors)

    def requires_gradient(self, x: Any) -> bool:
        """Whether something is a tensor whose gradient is recorded now."""
        return isinstance(x, self._tensor) and x.requires_grad and self.recording()

    def differentiates_traced(self) -> bool:
        """Whether, while a call is traced, a transformation is active in which the operator has no derivatives."""
        stack: Any = getattr(self._transforms, "get_interpreter_stack", list)() or ()
        return any(str(x.key()).rpartition(".")[2] in ("Grad", "Jvp") for x in stack)

    def traces(self, tensors: Sequence[Any]) -> bool:
        """Whether calls are traced, of which an operator has to stand in a graph; or a tensor has no values.

        Raises:
            GradientError: They are, but a tensor is a dual number, whose tangent the operator would lose.
        """
        found = self._are_traced(tensors)
        if found and self.duals() and any(map(self._is_dual, tensors)):
            raise GradientError(
                "forward-mode derivatives of a call that is traced, by torch.compile or a dispatch mode, would be "
                "lost: take them outside of it"
            )
        return found

    def _are_traced(self, tensors: Sequence[Any]) -> bool:
        if self._compiles() or self.dispatch_modes():
            return True
        known = self._transforms
        for x in tensors:
            if x is None:
                continue
            if self._holds_none(x):
                return True
            if known is not None and (known.is_functionaltensor(x) or known.is_legacy_batchedtensor(x)):
                return True
        return False

    def _holds_none(self, x: Any) -> bool:
        """Whether a tensor has no values, as those of the device "meta" and those that PyTorch traces with."""
        if x.__class__ in self._plain:
            return bool(x.is_meta)
        return any(cls.__name__ in HOLD_NO_VALUES for cls in type(x).__mro__)

    def _is_dual(self, x: Any) -> bool:
        if not isinstance(x, self._tensor) or not self._duals_count():
            return False
        return self.dual_levels.unpack_dual(x).tangent is not None

    def untransformed(self) -> AbstractContextManager[Any]:
        """A context in which no transformation of `torch.func` is active."""
        if self._level() is None:
            return nullcontext()
        pyfunctorch = import_module("torch._functorch.pyfunctorch")
        context: AbstractContextManager[Any] = pyfunctorch.temporarily_clear_interpreter_stack()
        return context

    def unwatched(self) -> AbstractContextManager[Any]:
        """A context in which no mode sees operators; PyTorch's compiler has one while its code runs first."""
        if not self.dispatch_modes():
            return nullcontext()
        context: AbstractContextManager[Any] = import_module("torch.utils._python_dispatch")._disable_current_modes()
        return context

    def unrecorded(self, x: Any) -> Any:
        """Within `untransformed`, a tensor on the same memory without derivatives; what is no tensor itself.

        Of a tensor that vmap maps over it is the first of those that it stands for.
        """
        if not isinstance(x, self._tensor):
            return x
        known = self._transforms
        while known is not None and known.is_functorch_wrapped_tensor(x):
            axis = known.maybe_get_bdim(x) if known.is_batchedtensor(x) else -1
            x = known.get_unwrapped(x)
            x = x if axis < 0 else x.select(axis, 0)
        if self._is_dual(x):
            x = self.dual_levels.unpack_dual(x).primal
        return x.detach()
