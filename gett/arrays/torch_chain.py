"""A network of products as one node of PyTorch's graph, and what is bound for all calls whose tensors lie alike.

Owns the order in which gradients of a network are formed, and when its tensors are let go. A gradient that is recorded
itself goes through the products of `gett.arrays.torch_autograd`. Knows neither subscripts nor plans: what runs a
product on tensors it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gett.arrays.torch import TorchLibrary, torch_library
from gett.arrays.torch_autograd import Product, contracted, contracted_or_view, gradient_form, operand_gradient

Run = Callable[[Any, Any], Any]
"""From one or two tensors, the second None for one, to a new one."""
_MOST_TAPES = 64  # of one chain: layouts of gradients, and which operands need one


class Turn(NamedTuple):
    """One gradient of a chain's backward.

    Attributes:
        above: Number of the tensor whose gradient is read.
        inputs: Of the product that gave it.
        place: Of which of these inputs this gradient is.
        product: That product.
        ends: Whether nobody reads the gradient above, and the inputs, after this.
    """

    above: int
    inputs: tuple[int, ...]
    place: int
    product: Product
    ends: bool


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """The products of a network in order, each of whose tensors is taken once.

    Attributes:
        count: How many operands there are.
        steps: Inputs of each product, and the product: numbers below `count` are operands, others results.
    """

    count: int
    steps: tuple[tuple[tuple[int, ...], Product], ...]

    def forward(self, operands: Sequence[Any]) -> list[Any]:
        """The operands and what each product gives, the result last; nothing is recorded."""
        tensors = [*operands]
        for inputs, product in self.steps:
            tensors.append(product.run(product, [tensors[i] for i in inputs], None))
        return tensors

    def backward(self, tensors: list[Any], gradient: Any, needs: Sequence[bool]) -> list[Any]:
        """The gradients of operands, None for one that nobody needs.

        Args:
            tensors: The operands and intermediates; each leaves the list once it was read.
            gradient: Of the result.
            needs: For each operand whether its gradient is needed.
        """
        library = torch_library()
        assert library is not None
        if len(self.steps) > 1 and library.modes.records([gradient, *tensors[: self.count]]):
            del tensors[self.count :]  # these do not know what they were computed of
            for inputs, product in self.steps[:-1]:
                tensors.append(contracted(product, [tensors[i] for i in inputs]))
        found = {self.count + len(self.steps) - 1: gradient}
        for turn in self.turns(needs):
            given = [tensors[i] for i in turn.inputs]
            own = found.pop(turn.above) if turn.ends else found[turn.above]
            found[turn.inputs[turn.place]] = operand_gradient(turn.product, given, turn.place, own)
            del given, own
            if turn.ends:
                for i in turn.inputs:
                    tensors[i] = None
        return [found.get(i) for i in range(self.count)]

    def turns(self, needs: Sequence[bool]) -> list[Turn]:
        """The gradients that some operands need, those of the last product first."""
        wanted = {i for i, need in enumerate(needs) if need}
        for number, (inputs, _) in enumerate(self.steps, self.count):
            if not wanted.isdisjoint(inputs):
                wanted.add(number)
        found = []
        for number, (inputs, product) in reversed([*enumerate(self.steps, self.count)]):
            places = [n for n, i in enumerate(inputs) if i in wanted]
            found += [Turn(number, inputs, n, product, n == places[-1]) for n in places]
        return found


class BoundChain:
    """A chain for operands that lie in one way on one GPU: plans of its products are neither sought nor checked again.

    It stands in the plan cache in the place of a plan.

    Args:
        chain: The products.
        prepare: From the operands to tensors that the products read, or None where these are the operands.
        bind: From a product and tensors to what runs it on tensors that lie alike, and to the steps of its plan.

    Attributes:
        steps: Those of all plans that are bound.
    """

    __slots__ = ("_bind", "_chain", "_forward", "_prepare", "_tapes", "steps")

    def __init__(
        self,
        chain: Chain,
        prepare: Callable[[Sequence[Any]], Sequence[Any]] | None,
        bind: Callable[[Product, Sequence[Any]], tuple[Run, Sequence[Any]]],
    ) -> None:
        self._chain, self._prepare, self._bind = chain, prepare, bind
        self._forward: list[tuple[int, int | None, Run]] | None = None
        self._tapes: dict[Any, list[tuple[Turn, int | None, Run]]] = {}
        self.steps: list[Any] = []

    def run(self, kind: Any, device: int, operands: Sequence[Any], *rest: Any) -> Any:
        """The result, of which derivatives are recorded. The arguments are those of a plan."""
        library = torch_library()
        assert library is not None
        if self._prepare is not None:
            operands = self._prepare(operands)
        return node_of(library).quick(self, *operands)

    def forward(self, operands: Sequence[Any]) -> list[Any]:
        """As `Chain.forward`."""
        tensors = [*operands]
        for first, second, run in self._forward or self._first_forward(tensors):
            tensors.append(run(tensors[first], None if second is None else tensors[second]))
        return tensors

    def _first_forward(self, tensors: Sequence[Any]) -> Iterator[tuple[int, int | None, Run]]:
        """The steps, each bound when the tensors that it reads are there."""
        bound: list[tuple[int, int | None, Run]] = []
        for inputs, product in self._chain.steps:
            run = self._bound(product, [tensors[i] for i in inputs])
            bound.append((inputs[0], inputs[1] if len(inputs) == 2 else None, run))
            yield bound[-1]
        self._forward = bound

    def backward(self, tensors: list[Any], gradient: Any, needs: Sequence[bool]) -> list[Any]:
        """As `Chain.backward`."""
        library = torch_library()
        assert library is not None
        warm = library.layouts([gradient, *tensors])
        if warm is None or warm[2]:
            return self._chain.backward(tensors, gradient, needs)
        key, found = (needs, tuple(warm[1])), {self._last: gradient}
        for (above, inputs, place, _, ends), other, run in self._tapes.get(key) or self._tape(key, tensors, found):
            found[inputs[place]] = run(found[above], None if other is None else tensors[other])
            if ends:
                del found[above]
                for i in inputs:
                    tensors[i] = None
        return [found.get(i) for i in range(self._chain.count)]

    def _tape(
        self, key: Any, tensors: Sequence[Any], found: Mapping[int, Any]
    ) -> Iterator[tuple[Turn, int | None, Run]]:
        """The turns for the first time of a key, each bound when the gradient that it reads is there."""
        tape: list[tuple[Turn, int | None, Run]] = []
        for turn in self._chain.turns(key[0]):
            other = next((i for n, i in enumerate(turn.inputs) if n != turn.place), None)
            run = self._gradient(turn, [tensors[i] for i in turn.inputs], found[turn.above])
            tape.append((turn, other, run))
            yield tape[-1]
        if len(self._tapes) >= _MOST_TAPES:
            self._tapes.clear()
        self._tapes[key] = tape

    @property
    def _last(self) -> int:
        return self._chain.count + len(self._chain.steps) - 1

    def _gradient(self, turn: Turn, given: Sequence[Any], gradient: Any) -> Run:
        """What forms the gradient of a turn, of tensors that lie as these do."""
        own = given[turn.place]
        others = [x for n, x in enumerate(given) if n != turn.place]
        form = gradient_form(turn.product, turn.place, own.dtype, (gradient.dtype, *[x.dtype for x in others]))
        shape = tuple(own.shape)
        if form.product.is_view:
            return lambda g, _: form.finish(contracted_or_view(form.product, [g]), shape)
        run = self._bound(form.product, [gradient, *others])
        return run if form.is_finished else lambda g, other: form.finish(run(g, other), shape)

    def _bound(self, product: Product, given: Sequence[Any]) -> Run:
        run, steps = self._bind(product, given)
        self.steps += steps
        return run


def node_of(library: TorchLibrary) -> Any:
    """The autograd function of a `Chain` or `BoundChain` and its operands.

    Its `quick` is `apply` where no transformation is active; PyTorch's own asks for that first.
    """
    if library.node is None:
        library.node = _node(library.module)
    return library.node


def _node(module: Any) -> Any:
    """The class, which is made once PyTorch is there."""
    engine = getattr(module._C, "_autograd", None)
    keeps: Callable[[], bool] | None = getattr(engine, "_get_current_graph_task_keep_graph", None)

    class Network(module.autograd.Function):  # type: ignore[misc]
        """The result of a chain."""

        @staticmethod
        def forward(ctx: Any, chain: Any, *operands: Any) -> Any:
            tensors = chain.forward(operands)
            result = tensors.pop()
            ctx.chain = chain
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(*tensors)
            return result

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            needs = tuple(ctx.needs_input_grad[1:])
            if gradient is None:
                return (None, *[None] * len(needs))
            tensors = [*ctx.saved_tensors]
            clear = getattr(ctx, "maybe_clear_saved_tensors", None)
            if len(tensors) > len(needs) and clear is not None and keeps is not None and not keeps():
                clear()  # so that each intermediate goes once it was read
            return (None, *ctx.chain.backward(tensors, gradient, needs))

    base = getattr(module._C, "_FunctionBase", None)
    Network.quick = Network.apply if base is None else super(module.autograd.Function, Network).apply
    return Network
