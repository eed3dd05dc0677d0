"""Watches one forward pass and notes every place where a trainable parameter meets activations.

Operations are seen as they are called (a torch function mode, active during the forward pass alone), so the model is
neither wrapped nor changed, and it does not matter which module made the call. Each operation that touches a trainable
parameter is one of two things:

- a *use*: its output has a dimension that counts examples. The operation runs with the parameter detached, so that
  the backward pass computes no weight gradient; its inputs and the gradient of its output give the contribution;
- a *derivation*: its output does not depend on the batch (a slice, a transpose, a standardised weight, a table of
  relative positions). It runs as it is, and its output is then watched like a parameter.

Which is which, and where the examples are, is known beforehand from `tacit.gradients.layout_probe`.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode, resolve_name

from tacit.core.errors import UnsupportedError
from tacit.gradients.arguments import replaced, tensors_in
from tacit.gradients.contributions import Contribution, Convolved, Direct, Outer, at_least_float32
from tacit.gradients.layers import ADAPTERS, REWRITES, RULES, Call, Layout, Rule
from tacit.gradients.layers.any_operation import any_operation
from tacit.gradients.parameter_gradients import ParameterGradients
from tacit.gradients.rounding import operand_bits

Function = Callable[..., Any]


class OtherWayError(UnsupportedError):
    """The model took another way through its code than the steps that were to be followed."""


@dataclasses.dataclass(frozen=True)
class Step:
    """What the probe found out about one operation that touches a parameter.

    Attributes:
        function: the operation; a pass that calls another one here took another way than the probe.
        dim: the output's dimension that counts examples; ``None`` makes it a derivation.
        fold: how many consecutive rows of that dimension belong to one example.
        batched: for each tensor of the arguments, whether its first dimension counts examples; ``None`` where that is
            not so simple.
    """

    function: Function
    dim: int | None
    fold: int = 1
    batched: tuple[bool, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Watched:
    """A trainable parameter (``names`` holds its one name) or a tensor derived from such alone."""

    tensor: Tensor
    names: frozenset[str]
    is_parameter: bool


@dataclasses.dataclass(frozen=True)
class Use:
    """One use of watched tensors: the call, where the examples are, and where its output's gradient is found.

    A graph of autograd ``begins`` at its output where nothing before it needed a gradient.
    """

    rule: Rule
    call: Call
    watched: Mapping[str, Watched]
    layout: Layout
    output: GradientEdge
    versions: tuple[int, ...]
    begins: bool

    @property
    def names(self) -> str:
        """The parameters that take part, for messages."""
        return ", ".join(sorted(name for watched in self.watched.values() for name in watched.names))

    def check_inputs(self) -> None:
        """The model must not have written to an input since the call: the gradient needs what the layer saw."""
        if tuple(t._version for t in self.call.inputs.values()) != self.versions:
            raise UnsupportedError(
                f"{self.names}: the model changes the input of this {self.rule.name} in place. Use out-of-place "
                "operations, or engine='functional'."
            )


class _Begin(torch.autograd.Function):
    """Makes a tensor that needs no gradient the start of a graph, without a copy and safe for later in-place use."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, values: Tensor) -> Tensor:
        del anchor
        ctx.mark_dirty(values)
        return values

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[None, None]:
        del ctx, grads
        return None, None


class Observer(TorchFunctionMode):
    """Sees every torch operation of a forward pass; composite ones as the plain operations they are made of."""

    def __torch_function__(self, function: Function, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in REWRITES:
            with self:
                return REWRITES[function](*args, **kwargs)
        if function in ADAPTERS:
            with self:
                args, kwargs = ADAPTERS[function](*args, **kwargs)
        return self.observe(function, args, kwargs)

    def observe(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs one operation."""
        return function(*args, **kwargs)


class Recorder(Observer):
    """Records the uses of ``parameters`` in one forward pass over ``examples`` examples.

    Args:
        parameters: name to trainable parameter.
        examples: how many examples the batch holds.
        steps: what the probe found, one for each operation that touches a watched tensor, in order.

    Attributes:
        uses: the uses seen so far, in order.
        precision: the coarsest relative rounding error among their outputs.
        written_out: parameters and operations that have no rule, so that every example's gradient is written out.
        work: what the gradients were made of, in multiplications an example by the number of tokens that one product is
            taken over. A convolution has one token here: its patches are not rows of one matrix.
    """

    def __init__(self, parameters: Mapping[str, Tensor], examples: int, steps: Sequence[Step]) -> None:
        super().__init__()
        self.examples = examples
        self.uses: list[Use] = []
        self.precision = 0.0
        self.written_out: list[tuple[str, str]] = []
        self.work: Counter[int] = Counter()
        self._watched = {id(tensor): Watched(tensor, frozenset([name]), True) for name, tensor in parameters.items()}
        self._steps = steps
        self._position = 0

    def observe(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs the operation, as a use or a derivation where it touches a watched tensor."""
        watched = [t for t in tensors_in((args, kwargs)) if id(t) in self._watched]
        if not watched or not torch.is_grad_enabled():
            return function(*args, **kwargs)
        if function in RULES:
            return self._apply_rule(RULES[function], function, args, kwargs)
        return self._derive(function, args, kwargs)

    def _apply_rule(self, rule: Rule, function: Function, args: tuple[Any, ...], kwargs: Any) -> Any:
        call = rule.sort(*args, **kwargs)
        roles = {role: self._watched[id(t)] for role, t in call.parameters.items() if id(t) in self._watched}
        output = function(*_detach(args, roles), **_detach(kwargs, roles))
        step = self.next_step(function, output)
        if step.dim is None:
            return self._watch(function, args, kwargs)
        stray = [t for t in tensors_in((args, kwargs)) if id(t) in self._watched and not _among(t, call.parameters)]
        if stray:
            raise self.unsupported(function, stray)
        return self._note(rule, call, roles, output, step)

    def _note(self, rule: Rule, call: Call, roles: Mapping[str, Watched], output: Tensor, step: Step) -> Tensor:
        """A use, and its output as the start of whatever follows."""
        function = step.function
        assert step.dim is not None
        if output.shape[step.dim] != step.fold * self.examples:
            raise UnsupportedError(
                f"{function_name(function)}: its output has shape {tuple(output.shape)}, where the probe found "
                f"{step.fold} rows for each example. Shapes that depend on values have no rule; use engine='reference'."
            )
        self.precision = max(self.precision, _precision(output))
        begins = not output.requires_grad
        if begins:
            output = output.contiguous() if output._is_view() else output
            output = _Begin.apply(torch.zeros((), requires_grad=True), output)  # type: ignore[no-untyped-call]
        if output.is_cuda and _has_channels_last(output):
            # Convolutions want the gradient as they gave the output; made so here, it is so for all that read it.
            output.register_hook(_put_channels_last)  # type: ignore[no-untyped-call]
        self.uses.append(
            Use(
                rule,
                call,
                roles,
                Layout(step.dim, step.fold, self.examples),
                get_gradient_edge(output),
                tuple(t._version for t in call.inputs.values()),
                begins,
            )
        )
        return output

    def _derive(self, function: Function, args: tuple[Any, ...], kwargs: Any) -> Any:
        """An operation without a rule: a derivation, or a use whose gradients are written out."""
        output = function(*args, **kwargs)
        first = next((t for t in tensors_in(output) if t.requires_grad), None)
        if first is None:
            return output
        step = self.next_step(function, first)
        if step.dim is not None:
            return self._write_out(function, args, kwargs, output, step)
        return self._watch_output(output, args, kwargs)

    def _write_out(self, function: Function, args: tuple[Any, ...], kwargs: Any, output: Any, step: Step) -> Tensor:
        simple = isinstance(output, Tensor) and step.dim == 0 and step.fold == 1 and step.batched is not None
        if not simple or _writes(function, kwargs):
            raise self.unsupported(function, tensors_in((args, kwargs)))
        tensors = list(tensors_in((args, kwargs)))
        places = {place: t for place, t in enumerate(tensors) if id(t) in self._watched}
        rule, call = any_operation(function_name(function), function, (args, kwargs), places, step.batched or ())
        roles = {str(place): self._watched[id(t)] for place, t in places.items()}
        self.written_out.append((", ".join(sorted(set().union(*(w.names for w in roles.values())))), rule.name))
        return self._note(rule, call, roles, function(*_detach(args, roles), **_detach(kwargs, roles)), step)

    def _watch(self, function: Function, args: tuple[Any, ...], kwargs: Any) -> Any:
        return self._watch_output(function(*args, **kwargs), args, kwargs)

    def _watch_output(self, output: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        inputs = list(tensors_in((args, kwargs)))
        others = [t for t in inputs if t.requires_grad and id(t) not in self._watched]
        names = frozenset().union(*(self._watched[id(t)].names for t in inputs if id(t) in self._watched))
        if others:
            raise UnsupportedError(
                f"{', '.join(sorted(names))}: combined with activations into something that has no dimension for "
                "examples, which mixes examples. Rewrite that part of the model, or use engine='functional'."
            )
        for tensor in tensors_in(output):
            known = self._watched.get(id(tensor))  # an operation may hand its argument back, such as a parameter
            if tensor.requires_grad and (known is None or not known.is_parameter):
                self._watched[id(tensor)] = Watched(tensor, names, False)
        return output

    def next_step(self, function: Function, output: Tensor) -> Step:
        """What the probe found about this operation."""
        del output
        step = self._steps[self._position] if self._position < len(self._steps) else None
        if step is None or step.function != function:
            raise OtherWayError(
                f"{function_name(function)}: the model took another way through its code than on the probe, so its "
                "forward pass depends on values. Use engine='functional' or engine='reference'."
            )
        self._position += 1
        return step

    def unsupported(self, function: Function, tensors: Sequence[Tensor] | Iterator[Tensor]) -> UnsupportedError:
        """The refusal of an operation that has no rule."""
        names = sorted(name for t in tensors if id(t) in self._watched for name in self._watched[id(t)].names)
        return UnsupportedError(
            f"{', '.join(names)}: used by {function_name(function)}, which has no layer rule. Use "
            "engine='functional', or engine='reference' where that fails too."
        )

    def gradients(self, losses: Tensor) -> dict[str, ParameterGradients]:
        """One backward pass to the outputs of all uses; what each parameter got from each example.

        A parameter that did not take part in this pass is missing from the result.
        """
        edges = [use.output for use in self.uses]
        grads: tuple[Tensor | None, ...] = torch.autograd.grad(losses.sum(), edges, allow_unused=True)
        found: dict[int, list[Contribution]] = {}
        with torch.no_grad():
            for use, grad in zip(self.uses, grads, strict=True):
                if grad is None:
                    continue
                use.check_inputs()
                contributions = use.rule.contribute(use.call, grad, use.layout)
                for role, watched in use.watched.items():
                    contribution = contributions[role]()
                    self._count(contribution)
                    found.setdefault(id(watched.tensor), []).append(contribution)
        return self._by_parameter(found)

    def _count(self, use: Contribution) -> None:
        if isinstance(use, Outer) and not use.one_hot:
            self.work[use.tokens] += use.tokens * use.shape.numel()
        elif isinstance(use, Convolved):
            self.work[1] += use.tokens * use.shape.numel()

    def _by_parameter(self, found: Mapping[int, list[Contribution]]) -> dict[str, ParameterGradients]:
        by_name: dict[str, list[Contribution]] = {}
        tensors = {name: w.tensor for w in self._watched.values() if w.is_parameter for name in w.names}
        for key, uses in found.items():
            watched = self._watched[key]
            if watched.is_parameter:
                (name,) = watched.names
                by_name.setdefault(name, []).extend(uses)
                continue
            for name, grads in _pull_back(watched, uses, tensors).items():
                by_name.setdefault(name, []).append(Direct(grads))
        with torch.no_grad():
            return {name: ParameterGradients.of(uses) for name, uses in by_name.items()}


def _pull_back(derived: Watched, uses: Sequence[Contribution], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Per-example gradients of a derived tensor, carried back to the parameters that it came from.

    By `torch.vmap`: ``is_grads_batched`` of `torch.autograd.grad` has no rule for many operations, such as the gradient
    of a clamp, and takes examples one by one through those. For the few that `torch.vmap` has none for, torch warns.
    """
    with torch.no_grad():
        each = [at_least_float32(use.write_out()) for use in uses]
        grads = functools.reduce(torch.add, each).to(derived.tensor.dtype)

    def pull(grad: Tensor, names: Sequence[str]) -> tuple[Any, ...]:
        parameters = [tensors[name] for name in names]
        return torch.autograd.grad(derived.tensor, parameters, grad, retain_graph=True, allow_unused=True)

    names = sorted(derived.names)
    found = zip(names, pull(torch.zeros_like(derived.tensor), names), strict=True)
    used = [name for name, grad in found if grad is not None]
    return dict(zip(used, torch.vmap(lambda grad: pull(grad, used))(grads), strict=True)) if used else {}


def _detach(arguments: Any, roles: Mapping[str, Watched]) -> Any:
    """The arguments with the watched tensors detached, so that no gradient is computed for them."""
    watched = {id(w.tensor) for w in roles.values()}
    return replaced(arguments, [t.detach() if id(t) in watched else t for t in tensors_in(arguments)])


def _put_channels_last(grad: Tensor) -> Tensor:
    return grad.contiguous(memory_format=torch.channels_last)


def _has_channels_last(values: Tensor) -> bool:
    last = values.dim() == 4 and values.is_contiguous(memory_format=torch.channels_last)
    return last and not values.is_contiguous()


def _precision(output: Tensor) -> float:
    """The relative rounding error of one operation; float32 products may be taken in fewer bits, ten on a GPU."""
    eps = float(torch.finfo(output.dtype).eps)
    if output.dtype != torch.float32:
        return eps
    return max(2.0 ** (1 - operand_bits()), 2.0**-10 if output.is_cuda else eps)


def _writes(function: Function, kwargs: Mapping[str, Any]) -> bool:
    """Whether an operation writes to one of its arguments: run again, it would find them changed."""
    name = function_name(function).rpartition(".")[2]
    return "out" in kwargs or name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))


def _among(tensor: Tensor, tensors: Mapping[str, Tensor]) -> bool:
    return any(tensor is other for other in tensors.values())


def function_name(function: Function) -> str:
    """A torch function's public name, for messages."""
    return str(resolve_name(function) or getattr(function, "__name__", function))
