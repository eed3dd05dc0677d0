"""Finds out, on two tiny batches, where the examples are in every layer of a model, and that they do not mix.

The model runs on 2 and then on 3 examples. A dimension of an output that grows from 2f to 3f counts examples; an output
that does not grow does not depend on the batch. Sizes alone could mislead (a sequence may be as long as a batch is
large), growth cannot. Then each example's loss is differentiated by itself: its gradient must be exactly zero in the
rows of all others. That refuses whatever mixes examples, by whatever means, and proves the layout right.

Last, no trainable parameter may reach the loss by a way on which no use was recorded; autograd itself is asked.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tacit.core.errors import UnsupportedError
from tacit.gradients.recorder import Function, Observer, Recorder, Step, Use, function_name, tensors_in

_SMALL, _LARGE = 2, 3

Losses = Callable[[int], Tensor]


def probe(parameters: Mapping[str, Tensor], losses: Losses) -> list[Step]:
    """The steps of a forward pass, for a `Recorder`.

    Args:
        parameters: name to trainable parameter.
        losses: runs the model on that many examples and returns one loss for each.

    Raises:
        UnsupportedError: the model mixes examples, or uses a parameter in a way that has no rule.
    """
    shapes = _ShapeLog()
    with shapes:
        losses(_SMALL)
    planner = _Planner(parameters, shapes.calls)
    with planner:
        values = losses(_LARGE)
    _check_isolation(planner.uses, values)
    _check_coverage(parameters, values)
    for use in planner.uses:
        use.check_inputs()
    return planner.found


class _ShapeLog(Observer):
    """Notes the shape of every operation's first output."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Function, torch.Size | None]] = []

    def observe(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        output = function(*args, **kwargs)
        self.calls.append((function, _shape(output)))
        return output


class _Planner(Recorder):
    """A recorder that makes the steps instead of following them, by comparison with the smaller batch."""

    def __init__(self, parameters: Mapping[str, Tensor], smaller: Sequence[tuple[Function, torch.Size | None]]) -> None:
        super().__init__(parameters, _LARGE, ())
        self.found: list[Step] = []
        self._smaller = smaller
        self._call = -1

    def observe(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._call += 1
        if self._call >= len(self._smaller) or self._smaller[self._call][0] != function:
            raise UnsupportedError(
                "model: takes another way through its code when the batch is larger. Use engine='functional'."
            )
        return super().observe(function, args, kwargs)

    def next_step(self, function: Function, output: Tensor) -> Step:
        small = self._smaller[self._call][1]
        dim, fold = _example_dimension(function, small, output.shape)
        step = Step(function, dim, fold)
        self.found.append(step)
        return step


def _shape(output: Any) -> torch.Size | None:
    first = next((t for t in tensors_in(output) if t.requires_grad), None)
    if first is None:
        first = next(tensors_in(output), None)
    return None if first is None else first.shape


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
    edges = [use.output for use in uses]
    for example in range(_LARGE):
        grads: tuple[Tensor | None, ...] = torch.autograd.grad(
            losses[example], edges, retain_graph=True, allow_unused=True
        )
        for use, grad in zip(uses, grads, strict=True):
            if grad is None:
                continue
            others = [e for e in range(_LARGE) if e != example]
            foreign = use.layout.rows(grad)[others]
            # NaN is no evidence: an overflowing activation times a gradient of zero.
            if bool(((foreign != 0) & ~foreign.isnan()).any()):
                raise UnsupportedError(
                    f"{use.names}: one example's loss depends on the activations of another behind this "
                    f"{use.rule.name}, so the model mixes examples. Replace what couples them (batch statistics, "
                    "operations along the batch dimension); for BatchNorm call tacit.models.replace_batchnorm."
                )


def _check_coverage(parameters: Mapping[str, Tensor], losses: Tensor) -> None:
    """No parameter may reach the loss other than through a recorded use."""
    if not losses.requires_grad:
        raise UnsupportedError(
            "loss: does not depend on any trainable parameter. Unfreeze a parameter, or return the model's own loss."
        )
    grads: tuple[Tensor | None, ...] = torch.autograd.grad(losses.sum(), list(parameters.values()), allow_unused=True)
    missed = [name for name, grad in zip(parameters, grads, strict=True) if grad is not None]
    if missed:
        raise UnsupportedError(
            f"{', '.join(missed)}: reaches the loss through an operation that cannot be observed (an in-place write or "
            "a custom autograd function). Use engine='functional'."
        )
