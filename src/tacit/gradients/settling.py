# ruff: noqa: ARG001 (a fake takes what its operator takes)
"""A fence for the compiler: what went through it is computed once and not again wherever it is used.

A compiler that fuses operations repeats short ones inside their consumers. The factors of clipping are a handful of
float64 operations an example; repeated for every coordinate of every layer they would cost more than the layer.

The fence is an operator that claims to change its argument and does nothing: the compiler has to write the values
before it and to read them after it, and nothing is launched for it.
"""

import torch
from torch import Tensor


@torch.library.custom_op("tacit::settle_", mutates_args=("values",))
def settle_(values: Tensor) -> None:
    """Leaves the values as they are."""


@settle_.register_fake
def _(values: Tensor) -> None:
    return None


def settled(values: Tensor) -> Tensor:
    """The same values, as a tensor of their own; a compiler drops the copy."""
    own = values.clone()
    settle_(own)
    return own
