"""Weights that are made of parameters before a layer uses them."""

import torch
from torch import Tensor


def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    r"""`torch._weight_norm`, :math:`g v / \|v\|`, of operations that torch differentiates for many examples at once.

    That of the one operation is taken for one example after the other, and a trace of it grows with the batch.
    """
    return v * (g / torch.norm_except_dim(v, 2, dim))
