"""A parameter that is added to, multiplied with or chosen among activations, or repeated for each example.

Learned scales, positions and class tokens enter models this way. The gradient of a broadcast operand is the output's
gradient (times the other factor), summed over every dimension along which it was repeated, but never over examples.
"""

import torch
from torch import Tensor

from tacit.gradients.contributions import Direct, at_least_float32
from tacit.gradients.layers.base import Call, Contributions, Layout, Rule


def reduce_to_shape(values: Tensor, layout: Layout, parameter: Tensor) -> Tensor:
    """``values`` has the output's shape; the result is ``[examples, *parameter.shape]``.

    Where the parameter has the examples' dimension itself (one row an example), example i moves row i alone.
    """
    rank = values.dim()
    padded = (1,) * (rank - parameter.dim()) + tuple(parameter.shape)
    if padded[layout.dim] != 1:
        eye = torch.eye(layout.examples, dtype=torch.bool, device=values.device)
        own = eye.repeat_interleave(layout.fold, dim=1)
        own = own.reshape(layout.examples, *(-1 if dim == layout.dim else 1 for dim in range(rank)))
        rows = at_least_float32(values)[None] * own
    else:
        rows = at_least_float32(layout.rows(values))
        if layout.fold == 1:
            rows = rows.unsqueeze(1 + layout.dim)
    summed = [1 + dim for dim in range(rank) if padded[dim] == 1 and rows.shape[1 + dim] != 1]
    if summed:
        rows = rows.sum(summed, keepdim=True)
    return rows.reshape(layout.examples, *parameter.shape)


def _operands(input: Tensor | float, other: Tensor | float) -> dict[str, Tensor]:
    """Either operand may be the parameter, so both have a role."""
    return {name: t for name, t in (("first", input), ("second", other)) if isinstance(t, Tensor)}


def _sort_sum(input: Tensor | float, other: Tensor | float, *, alpha: float = 1) -> Call:
    return Call(parameters=_operands(input, other), inputs={}, options={"alpha": alpha})


def _sort_product(input: Tensor | float, other: Tensor | float) -> Call:
    operands = _operands(input, other)
    return Call(parameters=operands, inputs=operands)


def _contribute_add(call: Call, grad: Tensor, layout: Layout) -> Contributions:
    return {
        "first": lambda: Direct(reduce_to_shape(grad, layout, call.parameters["first"])),
        "second": lambda: Direct(reduce_to_shape(grad * call.options["alpha"], layout, call.parameters["second"])),
    }


def _contribute_sub(call: Call, grad: Tensor, layout: Layout) -> Contributions:
    return {
        "first": lambda: Direct(reduce_to_shape(grad, layout, call.parameters["first"])),
        "second": lambda: Direct(reduce_to_shape(-grad * call.options["alpha"], layout, call.parameters["second"])),
    }


def _contribute_mul(call: Call, grad: Tensor, layout: Layout) -> Contributions:
    return {
        "first": lambda: Direct(reduce_to_shape(grad * call.inputs["second"], layout, call.parameters["first"])),
        "second": lambda: Direct(reduce_to_shape(grad * call.inputs["first"], layout, call.parameters["second"])),
    }


def _sort_where(condition: Tensor, input: Tensor | float, other: Tensor | float) -> Call:
    return Call(parameters=_operands(input, other), inputs={"condition": condition})


def _contribute_where(call: Call, grad: Tensor, layout: Layout) -> Contributions:
    chosen = call.inputs["condition"]
    return {
        "first": lambda: Direct(reduce_to_shape(grad * chosen, layout, call.parameters["first"])),
        "second": lambda: Direct(reduce_to_shape(grad * ~chosen, layout, call.parameters["second"])),
    }


def _sort_expand(input: Tensor, *sizes: object) -> Call:
    del sizes
    return Call(parameters={"repeated": input}, inputs={})


def _contribute_expand(call: Call, grad: Tensor, layout: Layout) -> Contributions:
    return {"repeated": lambda: Direct(reduce_to_shape(grad, layout, call.parameters["repeated"]))}


ADD = Rule("add", (torch.add, Tensor.add, Tensor.__radd__), _sort_sum, _contribute_add)
SUB = Rule("sub", (torch.sub, Tensor.sub), _sort_sum, _contribute_sub)
MUL = Rule("mul", (torch.mul, Tensor.mul, Tensor.__rmul__), _sort_product, _contribute_mul)
WHERE = Rule("where", (torch.where,), _sort_where, _contribute_where)
EXPAND = Rule("expand", (Tensor.expand, Tensor.expand_as), _sort_expand, _contribute_expand)
