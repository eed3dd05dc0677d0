"""Contributions made to break a norm: name to one example's. Not a test file itself."""

import torch
from rounding_checks import image, outer, random_tokens

from tacit.gradients.contributions import Contribution, Direct, Outer


def cancelling(difference: float, seed: int = 0) -> Contribution:
    """Two tokens that cancel but for a little: the sum is small under a large rounding error."""
    left, right = random_tokens(seed, tokens=2, rows=64, columns=64)
    left[:, 1] = left[:, 0]
    right[:, 1] = -right[:, 0] * (1 + difference)
    return outer(1000 * left, right)


def huge_beside_tiny() -> Contribution:
    left, right = random_tokens(1)
    scales = 10.0 ** torch.linspace(-9, 9, 6)[:, None]
    return outer(left * scales, right / scales.flip(0))


def subnormal(tokens: int, *, rows: int = 100, columns: int = 104) -> Contribution:
    """Scaling the narrower side rounds its subnormals to a grid, and the other side makes them large again."""
    sides = torch.full((1, tokens, rows), 3 * 2.0**-149), torch.full((1, tokens, columns), 1e18)
    return outer(*(sides if rows < columns else (torch.full_like(sides[0], 1e18), torch.full_like(sides[1], 3e-45))))


def always_rounded_up(tokens: int, size: int) -> Contribution:
    """A sum at 1 to which a little more than half a unit in its last place is added again and again."""
    left = torch.full((1, tokens, size), 2.0**-12 * (1 + 2.0**-6))
    left[:, ::256] = 1
    return outer(left, left.clone())


def equal_tokens(tokens: int) -> Contribution:
    left, right = random_tokens(2, tokens=1, rows=16, columns=16)
    return outer(left.expand(-1, tokens, -1).contiguous(), right.expand(-1, tokens, -1).contiguous())


def cancelling_image() -> Contribution:
    torch.manual_seed(3)
    grad = torch.randn(1, 4, 6, 6)
    grad[..., 3:] = -grad[..., :3] * (1 + 1e-5)
    return image(1000 * torch.randn(1, 3, 1, 1).expand(1, 3, 8, 8).contiguous(), grad, 3)


def uneven_image() -> Contribution:
    torch.manual_seed(4)
    scales = 10.0 ** torch.linspace(-8, 8, 8)
    return image(torch.randn(1, 3, 8, 8) * scales, torch.randn(1, 4, 6, 6) / scales[:6], 3)


def tiny_image() -> Contribution:
    """Squares of the inputs are zero in float32; products with the gradient are not."""
    torch.manual_seed(5)
    return image(1e-24 * torch.rand(1, 3, 8, 8), 1e24 * torch.rand(1, 4, 6, 6), 3)


def subnormal_image() -> Contribution:
    return image(torch.full((1, 8, 6, 6), 1e18), torch.full((1, 8, 4, 4), 3 * 2.0**-149), 3)


def subnormal_input() -> Contribution:
    """The input is the smaller side, which is scaled."""
    return image(torch.full((1, 4, 6, 6), 3 * 2.0**-149), torch.full((1, 32, 4, 4), 1e18), 3)


def cancelling_words() -> Contribution:
    torch.manual_seed(6)
    right = torch.randn(1, 1, 64, 16) * 1000
    right[:, :, 32:] = -right[:, :, :32] * (1 + 1e-6)
    return Outer(torch.zeros(1, 1, 64, dtype=torch.int64), right, torch.Size((3, 16)))


def long_row() -> Contribution:
    """A million equal numbers: a float32 sum of their squares stops growing."""
    return Direct(torch.full((1, 1_000_000), 0.1))


HARD = {
    "cancelling": lambda: cancelling(1e-7),
    "cancelling-less": lambda: cancelling(1e-3),
    "cancelling-exactly": lambda: cancelling(0.0),
    "huge-beside-tiny": huge_beside_tiny,
    "subnormal-one-token": lambda: subnormal(1),
    "subnormal-tokens": lambda: subnormal(3),
    "subnormal-one-token-right": lambda: subnormal(1, columns=96),
    "subnormal-tokens-right": lambda: subnormal(3, columns=96),
    "rounded-up": lambda: always_rounded_up(384, 2),
    "rounded-up-wide": lambda: always_rounded_up(1024, 8),
    "equal-tokens": lambda: equal_tokens(300),
    "cancelling-image": cancelling_image,
    "uneven-image": uneven_image,
    "tiny-image": tiny_image,
    "subnormal-image": subnormal_image,
    "subnormal-input": subnormal_input,
    "cancelling-words": cancelling_words,
    "long-row": long_row,
    "long-row-one-token": lambda: outer(torch.full((1, 1, 1000), 0.1), torch.full((1, 1, 1000), 0.3)),
}
