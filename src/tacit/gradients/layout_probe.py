"""Finds out, on a few tiny batches, where the examples are in every layer of a model, and that they do not mix.

The model runs on 2 and then on 3 examples. A dimension of an output that grows from 2f to 3f counts examples; an output
that does not grow does not depend on the batch. Sizes alone could mislead (a sequence may be as long as a batch is
large), growth cannot. Then each example's loss is differentiated by itself: its gradient must be exactly zero in the
rows of all others, which proves the layout right and refuses what mixes activations. No trainable parameter may reach
the loss by a way on which no use was recorded, and all that was recorded must add up to autograd's own gradient. Last,
`tacit.gradients.independence` refuses what autograd cannot see.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tacit.core.errors import UnsupportedError
from tacit.gradients.arguments import tensors_in
from tacit.gradients.contributions import Direct, at_least_float32
from tacit.gradients.independence import Fingerprint, Pass, Places, check_independence, check_total, fingerprint
from tacit.gradients.model_state import generator_states, same_states, seed_generators
from tacit.gradients.parameter_gradients import ParameterGradients
from tacit.gradients.recorder import (
    Function,
    Observer,
    OtherWayError,
    Recorder,
    Step,
    Use,
    function_name,
)

_SMALL, _LARGE = 2, 3
PROBED = _LARGE

Losses = Callable[[Places], Tensor]


@dataclasses.dataclass(frozen=True)
class Findings:
    """What a probe found.

    Attributes:
        ways: for each way that the model took through its code, one step for each operation that touches a parameter.
        finite: whether all gradients were finite. Where not, mixing may have gone unseen.
    """

    ways: list[list[Step]]
    finite: bool


def probe(parameters: Mapping[str, Tensor], losses: Losses) -> Findings:
    """The steps of a forward pass, after every check that examples do not mix.

    Args:
        parameters: name to trainable parameter.
        losses: runs the model on those of the probe's examples and returns one loss for each.

    Raises:
        UnsupportedError: the model mixes examples, or uses a parameter in a way that has no rule.
    """
    probing = _Probing(parameters, losses)
    finite = check_independence(probing.run, _LARGE)
    return Findings(probing.ways, finite)


class _Probing:
    """Runs the model on small batches, by the steps that are known or by new ones."""

    def __init__(self, parameters: Mapping[str, Tensor], losses: Losses) -> None:
        self.ways: list[list[Step]] = []
        self._parameters, self._losses = parameters, losses

    def run(self, places: Places) -> Pass | None:
        """A pass over these examples; ``None`` where there are too few of them to find their way."""
        for steps in self.ways:
            recorder = Recorder(self._parameters, len(places), steps)
            try:
                return self._pass(recorder, *self._forward(recorder, places))
            except OtherWayError:
                continue
        return self._find_way(places) if len(places) == _LARGE else None

    def _find_way(self, places: Places) -> Pass:
        """Whether a pass goes this or that way may depend on a single example, so every smaller batch is tried."""
        for left_out in reversed(range(_LARGE)):
            shapes = _ShapeLog()
            self._forward(shapes, (*places[:left_out], *places[left_out + 1 :]))
            planner = _Planner(self._parameters, shapes.calls)
            try:
                values, random = self._forward(planner, places)
            except OtherWayError:
                if left_out == 0:
                    raise
                continue
            break
        _check_isolation(planner.uses, values)
        _check_coverage(self._parameters, values)
        found, steps = self._pass(planner, values, random), planner.found
        del planner, values  # with all that they recorded, before a second pass takes as much
        check_total(found, self._plain(places))
        self.ways.append(steps)
        return found

    def _plain(self, places: Places) -> dict[str, Fingerprint]:
        """Fingerprints of autograd's own gradients over the whole batch."""
        values, _ = self._forward(Observer(), places)
        grads = torch.autograd.grad(values.sum(), list(self._parameters.values()), allow_unused=True)
        written_out = {
            name: ParameterGradients([Direct(at_least_float32(grad.to_dense())[None])])
            for name, grad in zip(self._parameters, grads, strict=True)
            if grad is not None
        }
        return self._fingerprints(written_out)

    def _forward(self, observer: Observer, places: Places) -> tuple[Tensor, bool]:
        seed_generators(0)  # the same dropout in every pass
        before = generator_states()
        with observer:
            values = self._losses(places)
        unmoved = same_states(before, generator_states())
        return values, not unmoved

    def _pass(self, recorder: Recorder, values: Tensor, random: bool) -> Pass:
        return Pass(self._fingerprints(recorder.gradients(values)), random, recorder.precision)

    @torch.no_grad()
    def _fingerprints(self, gradients: Mapping[str, ParameterGradients]) -> dict[str, Fingerprint]:
        return {
            name: fingerprint(gradients[name], parameter.shape, seed)
            for seed, (name, parameter) in enumerate(self._parameters.items())
            if name in gradients
        }


@dataclasses.dataclass(frozen=True)
class _Shapes:
    """Of one call: its first output's shape, and those of all tensors among its arguments."""

    function: Function
    output: torch.Size | None
    arguments: list[torch.Size]


class _ShapeLog(Observer):
    """Notes the shapes of every operation's first output and of its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Shapes] = []

    def observe(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = [t.shape for t in tensors_in((args, kwargs))]
        output = function(*args, **kwargs)
        self.calls.append(_Shapes(function, _shape(output), given))
        return output


class _Planner(Recorder):
    """A recorder that makes the steps instead of following them, by comparison with the smaller batch."""

    def __init__(self, parameters: Mapping[str, Tensor], smaller: Sequence[_Shapes]) -> None:
        super().__init__(parameters, _LARGE, ())
        self.found: list[Step] = []
        self._smaller = smaller
        self._call = -1
        self._selection: str | None = None
        self._arguments: list[torch.Size] = []

    def observe(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._call += 1
        self._arguments = [t.shape for t in tensors_in((args, kwargs))]
        if self._call >= len(self._smaller) or self._smaller[self._call].function != function:
            raise OtherWayError(
                "model: takes another way through its code when the batch is larger. Use engine='functional'."
            )
        output = super().observe(function, args, kwargs)
        if _selects_by_value(function, args, kwargs) and _shape(output) != self._smaller[self._call].output:
            self._selection = function_name(function)
        return output

    def next_step(self, function: Function, output: Tensor) -> Step:
        small = self._smaller[self._call].output
        dim, fold = _example_dimension(function, small, output.shape)
        if dim is not None and self._selection:
            raise UnsupportedError(
                f"{function_name(function)}: runs on rows that {self._selection} selected by their values, so it is "
                "not known which example a row belongs to. Compute on all rows and mask the result, or use "
                "engine='reference'."
            )
        step = Step(function, dim, fold, _batched(self._smaller[self._call].arguments, self._arguments))
        self.found.append(step)
        return step


def _batched(small: Sequence[torch.Size], large: Sequence[torch.Size]) -> tuple[bool, ...] | None:
    """Which arguments grow with the batch, in the first dimension alone; ``None`` where any grows otherwise."""
    if len(small) != len(large):
        return None
    grown = [one != other for one, other in zip(small, large, strict=True)]
    plain = all(
        not more or (one[:1] == (_SMALL,) and other[:1] == (_LARGE,) and one[1:] == other[1:])
        for more, one, other in zip(grown, small, large, strict=True)
    )
    return tuple(grown) if plain else None


def _shape(output: Any) -> torch.Size | None:
    first = next((t for t in tensors_in(output) if t.requires_grad), None)
    if first is None:
        first = next(tensors_in(output), None)
    return None if first is None else first.shape


def _selects_by_value(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the number of rows in the result depends on values: which row is whose then does so too."""
    name = function_name(function).rpartition(".")[2]
    if name == "where":
        return len(args) + len(kwargs) == 1
    if name in ("__getitem__", "index_put_"):
        return any(index.dtype in (torch.bool, torch.uint8) for index in tensors_in(args[1:]))
    if name == "repeat_interleave":
        return any(True for _ in tensors_in((args[1:], kwargs)))
    return name in ("nonzero", "argwhere", "masked_select", "unique", "unique_consecutive")


def _example_dimension(function: Function, small: torch.Size | None, large: torch.Size) -> tuple[int | None, int]:
    if small == large:
        return None, 1
    grown = [] if small is None or len(small) != len(large) else [d for d in range(len(large)) if small[d] != large[d]]
    if len(grown) == 1:
        fold, rest = divmod(large[grown[0]], _LARGE)
        whole = rest == 0 and small is not None and small[grown[0]] == fold * _SMALL
        if whole and (fold == 1 or grown[0] == 0):
            return grown[0], fold
    raise UnsupportedError(
        f"{function_name(function)}: its output has shape {tuple(large)} for {_LARGE} examples and "
        f"{tuple(small or ())} for {_SMALL}, with no dimension that counts examples. Use engine='functional'."
    )


def _check_isolation(uses: Sequence[Use], losses: Tensor) -> None:
    """The loss of one example must not move with the activations of another."""
    for example in range(_LARGE):
        mixed = _mixed_uses(uses, losses[example], [e for e in range(_LARGE) if e != example])
        if mixed:
            use = uses[min(mixed)]
            raise UnsupportedError(
                f"{use.names}: one example's loss depends on the activations of another behind this "
                f"{use.rule.name}, so the model mixes examples. Replace what couples them (batch statistics, "
                "operations along the batch dimension); for BatchNorm call tacit.models.replace_batchnorm."
            )


def _mixed_uses(uses: Sequence[Use], loss: Tensor, others: Sequence[int]) -> set[int]:
    """The places of those uses in whose rows of the other examples the loss has a gradient.

    One backward pass to the uses that the graph begins with comes by all that follow, whose gradients are looked at on
    the way: all of them at once would take more memory than a step. What it did not come by is then asked for.
    """
    mixed: set[int] = set()
    seen: set[int] = set()

    def look(place: int, grad: Tensor | None) -> None:
        seen.add(place)
        if grad is None:
            return
        rows = uses[place].layout.rows(grad)
        # NaN, which is neither, is no evidence: an overflowing activation times a gradient of zero.
        if any(bool((rows[other] > 0).any()) or bool((rows[other] < 0).any()) for other in others):
            mixed.add(place)

    def look_within(place: int, grads: Sequence[Tensor | None]) -> None:
        look(place, grads[uses[place].output.output_nr])

    later = [place for place, use in enumerate(uses) if not use.begins]
    hooks = [uses[place].output.node.register_prehook(functools.partial(look_within, place)) for place in later]
    try:
        for several in ([place for place, use in enumerate(uses) if use.begins], later):
            unseen = [place for place in several if place not in seen]
            edges = [uses[place].output for place in unseen]
            grads = torch.autograd.grad(loss, edges, retain_graph=True, allow_unused=True) if edges else ()
            for place, grad in zip(unseen, grads, strict=True):
                look(place, grad)
    finally:
        for hook in hooks:
            hook.remove()
    return mixed


def _check_coverage(parameters: Mapping[str, Tensor], losses: Tensor) -> None:
    """No parameter may reach the loss other than through a recorded use."""
    if not losses.requires_grad:
        raise UnsupportedError(
            "loss: does not depend on any trainable parameter. Unfreeze a parameter, or return the model's own loss."
        )
    grads: tuple[Tensor | None, ...] = torch.autograd.grad(
        losses.sum(), list(parameters.values()), retain_graph=True, allow_unused=True
    )
    missed = [name for name, grad in zip(parameters, grads, strict=True) if grad is not None]
    if missed:
        raise UnsupportedError(
            f"{', '.join(missed)}: reaches the loss through an operation that cannot be observed (an in-place write or "
            "a custom autograd function). Use engine='functional'."
        )
