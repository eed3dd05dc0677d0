"""Operations without a rule of their own: each example's gradient by vmap of the vjp of that one operation.

Any differentiable torch function qualifies whose output and whose activations count examples in the first dimension.
Its parameters' gradients are written out for every example, which costs memory; the rest of the model is not touched by
that.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tacit.gradients.arguments import replaced, tensors_in
from tacit.gradients.contributions import Direct, at_least_float32
from tacit.gradients.layers.base import Call, Contributions, Layout, Rule


def any_operation(
    name: str,
    function: Callable[..., Any],
    arguments: tuple[tuple[Any, ...], dict[str, Any]],
    parameters: dict[int, Tensor],
    batched: tuple[bool, ...],
) -> tuple[Rule, Call]:
    """A rule for one call of ``function``.

    Args:
        name: for messages.
        function: the operation.
        arguments: positional and by name, trees of tensors and other values.
        parameters: the place of each parameter among all tensors of the arguments, and the parameter.
        batched: for each tensor of the arguments, whether its first dimension counts examples.
    """
    tensors = list(tensors_in(arguments))
    call = Call(
        parameters={str(place): tensor for place, tensor in parameters.items()},
        inputs={str(place): tensor for place, tensor in enumerate(tensors) if place not in parameters},
        options={"function": function, "arguments": arguments, "batched": batched},
    )
    return Rule(name, (function,), lambda *_, **__: call, _contribute), call


def _contribute(call: Call, grad: Tensor, layout: Layout) -> Contributions:
    del layout
    found: dict[str, Tensor] = {}

    def written(role: str) -> Direct:
        if not found:
            found.update(_per_example(call, grad))
        return Direct(found[role])

    return {role: functools.partial(written, role) for role in call.parameters}


def _per_example(call: Call, grad: Tensor) -> dict[str, Tensor]:
    """Role to ``[examples, *shape]``."""
    function, batched = call.options["function"], call.options["batched"]
    rows = {int(place): _wide(t) for place, t in call.inputs.items() if batched[int(place)]}
    shared = {int(place): _wide(t) for place, t in call.inputs.items() if not batched[int(place)]}
    parameters = tuple(_wide(t.detach()) for t in call.parameters.values())

    def one(row: tuple[Tensor, ...], output_grad: Tensor) -> tuple[Tensor, ...]:
        placed = dict(shared) | {place: value[None] for place, value in zip(rows, row, strict=True)}

        def output(*weights: Tensor) -> Tensor:
            chosen = placed | {int(role): weight for role, weight in zip(call.parameters, weights, strict=True)}
            args, kwargs = replaced(call.options["arguments"], [chosen[i] for i in range(len(chosen))])
            value: Tensor = function(*args, **kwargs)
            return value

        pull: Callable[[Tensor], tuple[Tensor, ...]] = torch.func.vjp(output, *parameters)[1]
        return pull(output_grad[None])

    grads = torch.func.vmap(one, in_dims=((0,) * len(rows), 0))(tuple(rows.values()), _wide(grad))
    return dict(zip(call.parameters, grads, strict=True))


def _wide(values: Tensor) -> Tensor:
    return at_least_float32(values) if values.is_floating_point() else values
