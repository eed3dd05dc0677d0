"""The check that no example adds more than its norm says, and what it is shown. Not a test file itself."""

import contextlib
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tacit.gradients.contributions import Contribution, Convolved, Outer
from tacit.gradients.convolving import Geometry
from tacit.gradients.ways import ways_for

FLOAT64_ROUNDING = 1 + 1e-11  # of the lengths that are compared here
SHARES = (1.0, 0.6, 0.5, 1 / 3, 1e-3)
IMAGE = Geometry((1, 1), (0, 0), (1, 1), 1)


@contextlib.contextmanager
def matmul_precision(name: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextlib.contextmanager
def convolution_precision(name: str) -> Iterator[None]:
    """The setting for a CPU's convolutions, where this torch has one."""
    conv = getattr(torch.backends.mkldnn, "conv", None)
    if conv is None:
        pytest.skip("this torch has no such setting")
    before, conv.fp32_precision = conv.fp32_precision, name
    try:
        yield
    finally:
        conv.fp32_precision = before


def outer(left: Tensor, right: Tensor) -> Outer:
    """One group; ``[examples, tokens, …]`` on both sides."""
    return Outer(left[:, None], right[:, None], torch.Size((left.shape[-1], right.shape[-1])))


def image(values: Tensor, grad: Tensor, kernel: int) -> Convolved:
    shape = torch.Size((grad.shape[1], values.shape[1], kernel, kernel))
    return Convolved(values, grad, shape, IMAGE, len(values))


def check_bound(use: Contribution, names: tuple[str, ...] | None = None, shares: tuple[float, ...] = SHARES) -> None:
    """Clipped to a share of its norm, what one example adds has at most the length of the bound."""
    for name, way in ways_for(use).items():
        if names is not None and name not in names:
            continue
        measured = way.measure(use)
        norm = measured.squared.sqrt()
        for share in shares if bool(torch.isfinite(norm).all()) else ():
            bound = norm * share
            weight = torch.where(norm > 0, bound / norm, torch.ones_like(norm))
            added = float(measured.source.weighted_sum(weight).double().norm())
            assert added <= float(bound) * FLOAT64_ROUNDING, (name, share, added, float(bound))


def random_tokens(seed: int, tokens: int = 6, rows: int = 9, columns: int = 7) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    return torch.randn(1, tokens, rows), torch.randn(1, tokens, columns)
