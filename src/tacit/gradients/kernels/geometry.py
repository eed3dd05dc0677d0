"""The geometry of a two-dimensional convolution, as the kernels and their twins need it."""

import dataclasses
from collections.abc import Iterator, Sequence

from torch import Tensor

from tacit.core.errors import InputError

Pair = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Geometry:
    """Height and width of everything that decides which input a weight meets at an output position.

    Output position o and kernel offset k meet input ``o * stride - padding + k * dilation``, or zero outside the input.
    """

    kernel_size: Pair
    stride: Pair
    padding: Pair
    dilation: Pair

    def __post_init__(self) -> None:
        for name, least in (("kernel_size", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
            pair = getattr(self, name)
            if len(pair) != 2 or min(pair) < least:
                raise InputError(
                    f"{name}={pair!r}: must be two whole numbers of at least {least}. Pass (height, width)."
                )

    def __iter__(self) -> Iterator[Pair]:
        """The four pairs in order, as the operators take them."""
        return iter((self.kernel_size, self.stride, self.padding, self.dilation))

    @classmethod
    def of(cls, numbers: Sequence[int]) -> "Geometry":
        """The inverse of `numbers`."""
        kh, kw, sh, sw, ph, pw, dh, dw = numbers
        return cls((kh, kw), (sh, sw), (ph, pw), (dh, dw))

    @property
    def numbers(self) -> list[int]:
        """All eight numbers in order, as a registered operator takes them."""
        return [*self.kernel_size, *self.stride, *self.padding, *self.dilation]

    @property
    def offsets(self) -> int:
        """How many weights a channel has: KH * KW."""
        return self.kernel_size[0] * self.kernel_size[1]

    def output_size(self, height: int, width: int) -> Pair:
        """How many output positions an input of this size has, by height and width."""
        sizes = [
            (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for size, kernel, stride, padding, dilation in zip(
                (height, width), self.kernel_size, self.stride, self.padding, self.dilation, strict=True
            )
        ]
        return sizes[0], sizes[1]

    def check(self, x: Tensor, grad: Tensor) -> None:
        """Refuses inputs and output gradients that no convolution of this geometry can have had."""
        if x.dim() != 4 or grad.dim() != 4 or x.shape[0] != grad.shape[0]:
            raise InputError(
                f"x={list(x.shape)}, grad={list(grad.shape)}: must be [B, C, H, W] and [B, O, OH, OW]. "
                "Add the missing dimension."
            )
        expected = self.output_size(x.shape[2], x.shape[3])
        if tuple(grad.shape[2:]) != expected:
            raise InputError(
                f"grad={list(grad.shape)}: must have spatial size {expected} for x={list(x.shape)}, {self}. "
                "Pass the arguments of the convolution that ran."
            )
