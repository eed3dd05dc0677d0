"""Products with a matrix: ``F.linear``, ``addmm`` (the transposed linear layer of some language models) and ``matmul``.

With tokens a_t and output gradients g_t, example i adds :math:`\\sum_t g_t a_t^T` to the weight and
:math:`\\sum_t g_t` to the bias.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from tacit.core.errors import UnsupportedError
from tacit.gradients.contributions import Direct, Outer, at_least_float32
from tacit.gradients.layers.base import Call, Contributions, Layout, Rule, present, product_dtype


def _outer(left: Tensor, right: Tensor, shape: torch.Size) -> Outer:
    """``left``, ``right``: ``[examples, tokens, *]``."""
    dtype = product_dtype(left, right)
    return Outer(left[:, None].to(dtype), right[:, None].to(dtype), shape)


def _over_tokens(grads: Tensor) -> Tensor:
    """The sum over the tokens; of one token, as it is."""
    return grads[:, 0] if grads.shape[1] == 1 else at_least_float32(grads).sum(1)


def _sort_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Call:
    return Call(parameters=present(weight=weight, bias=bias), inputs={"input": input})


def _contribute_linear(call: Call, grad: Tensor, layout: Layout) -> Contributions:
    grads = layout.tokens(grad)
    return {
        "weight": lambda: _outer(grads, layout.tokens(call.inputs["input"]), call.parameters["weight"].shape),
        "bias": lambda: Direct(_over_tokens(grads)),
    }


def _sort_addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Call:
    options = {"beta": beta, "alpha": alpha}
    return Call(parameters={"bias": input, "weight": mat2}, inputs={"input": mat1}, options=options)


def _contribute_addmm(call: Call, grad: Tensor, layout: Layout) -> Contributions:
    grads, weight = layout.tokens(grad), call.parameters["weight"]
    return {
        "weight": lambda: _outer(layout.tokens(call.inputs["input"]) * call.options["alpha"], grads, weight.shape),
        "bias": lambda: Direct(at_least_float32(_over_tokens(grads)) * call.options["beta"]),
    }


def _sort_matmul(input: Tensor, other: Tensor) -> Call:
    if other.dim() != 2:
        raise UnsupportedError(
            f"matmul with a parameter of {other.dim()} dimensions: only matrices have a rule. Use engine='functional'."
        )
    return Call(parameters={"weight": other}, inputs={"input": input})


def _contribute_matmul(call: Call, grad: Tensor, layout: Layout) -> Contributions:
    weight = call.parameters["weight"]
    return {
        "weight": lambda: _outer(layout.tokens(call.inputs["input"]), layout.tokens(grad), weight.shape),
    }


LINEAR = Rule("Linear", (F.linear,), _sort_linear, _contribute_linear)
ADDMM = Rule("addmm", (torch.addmm, torch.Tensor.addmm), _sort_addmm, _contribute_addmm)
MATMUL = Rule(
    "matmul",
    (torch.matmul, torch.Tensor.matmul, torch.mm, torch.Tensor.mm, torch.Tensor.__matmul__),
    _sort_matmul,
    _contribute_matmul,
)
