r"""How far a computed product of matrices may be from the true one, at most.

Book-keeping takes a norm from one computation and the clipped sum from another. Both round. A norm that came out too
small would be clipped too little, so what rounding can do is bounded here and added to the norm: where it matters at
all, an example is clipped a little more, and never less, than its bound.

The model is the usual one (Higham, Accuracy and Stability of Numerical Algorithms, 2002, chapter 3): an operand is
rounded to the precision of the product's units, and a sum of k products is off by at most :math:`k u` times the sum of
their sizes, in whatever order they are added, or by twice that where matrix units cut sums off instead of rounding
them. That is the worst case, and data can bring it about, so nothing less will do.
"""

import functools
import math
from collections.abc import Hashable

import torch

# Significant bits that a float32 operand keeps. Matrix units cut the rest off instead of rounding it.
TF32_BITS = 11
_OPERAND_BITS = {"highest": 24, "high": TF32_BITS, "medium": 8}
_NEWER_OPERAND_BITS = {"tf32": TF32_BITS, "bf16": 8}  # by the names of torch's newer interface
_HALF_BITS = {torch.float16: 11, torch.bfloat16: 8}
_TWO_HALVES = 2.0**-15  # what two numbers of bfloat16 may miss of one of float32, and the sums of the second ones


def operand_bits() -> int:
    """The significant bits of float32 that matrix products and convolutions keep, by torch's settings."""
    try:
        matmul = _OPERAND_BITS[torch.get_float32_matmul_precision()]
    except RuntimeError:  # the setting was made by torch's newer interface, and this one refuses to answer
        matmul = _OPERAND_BITS["medium"]
    return matmul


def convolution_bits() -> int:
    """The same of convolutions, which have settings of their own beside that one, for a GPU and for a CPU."""
    own = _NEWER_OPERAND_BITS.get(_setting_of_cpu_convolutions(), _OPERAND_BITS["highest"])
    if _has_gpu() and _cuts_gpu_convolutions():
        own = min(own, TF32_BITS)
    return min(own, operand_bits())


def product_settings(device: str) -> Hashable:
    """Torch's settings for products and convolutions on a kind of device, without those for others: a program that runs
    there is as precise as they say.
    """
    return operand_bits(), _cuts_gpu_convolutions() if device == "cuda" else _setting_of_cpu_convolutions()


@functools.cache
def _has_gpu() -> bool:
    """Asked in every step, and the answer stays."""
    return torch.cuda.is_available()


def _setting_of_cpu_convolutions() -> str:
    return str(getattr(_cpu_convolutions(), "fp32_precision", None))


@functools.cache
def _cpu_convolutions() -> object:
    """What holds their setting, where this torch has one."""
    return getattr(torch.backends.mkldnn, "conv", None)


def _cuts_gpu_convolutions() -> bool:
    try:
        return bool(torch._C._get_cudnn_allow_tf32())  # torch.backends.cudnn's, which takes four times as long
    except RuntimeError:  # as above
        return True


def operand_error(dtype: torch.dtype, *, convolution: bool = False) -> float:
    """The relative error of one product of two operands of a sum over examples, before anything is added up.

    One of them is scaled: it is float32 and may be cut down, or for bfloat16 two of its numbers. The other one is cut
    down too unless it is half precision, which has few bits already.
    """
    if dtype == torch.float64:
        return 2.0**-52
    bits = convolution_bits() if convolution else operand_bits()
    unit = 2.0 ** (1 - bits)
    cut = unit if _HALF_BITS.get(dtype, math.inf) <= bits else 2 * unit + unit * unit
    return max(cut, _TWO_HALVES) if dtype == torch.bfloat16 else cut


def unscaled_error(dtype: torch.dtype) -> float:
    """The same of a product of two operands as they are: none in half precision, whose products float32 holds."""
    return 0.0 if _HALF_BITS.get(dtype, math.inf) <= operand_bits() else operand_error(dtype)


def sum_error(terms: int, dtype: torch.dtype, *, convolution: bool = False) -> float:
    """The relative error of a sum of so many terms, against the sum of their sizes."""
    eps = float(torch.finfo(torch.promote_types(dtype, torch.float32)).eps)
    bits = convolution_bits() if convolution else operand_bits()
    cut = dtype in _HALF_BITS or (dtype != torch.float64 and bits < _OPERAND_BITS["highest"])
    if dtype == torch.bfloat16:
        terms += terms // 64 + 2  # two sums, of which the second is a hundredth of the first
    return terms * eps / (1 if cut else 2)


def blocked_sum_error(terms: int, block: int, stretches: int = 1) -> float:
    """The same in float32 where matrix units add up blocks of terms, and ordinary ones what these come to.

    Each of so many equal stretches of the terms begins with a block of its own.
    """
    each = -(-terms // stretches)
    return (min(each, block) + stretches * -(-each // block)) * 2.0**-23


def smallest_normal(dtype: torch.dtype) -> float:
    """Products below it may come out as zero."""
    return float(torch.finfo(torch.promote_types(dtype, torch.float32)).tiny)


def square_sum_error(terms: int) -> float:
    """The relative error of the length of a float32 vector whose squares were added up in float32, in any order.

    Each square is off by half a unit and their sum by as many units as there are terms; the root halves both.
    """
    return (terms + 2) * 2.0**-24


def largest_sum(dtype: torch.dtype) -> float:
    """Sizes that add up to less are held on the way to their sum, in whatever order they are added."""
    return float(torch.finfo(torch.promote_types(dtype, torch.float32)).max) / 2


def lost_squares(entries: int) -> float:
    """The length that a float32 vector may lose where squares are too small for float32."""
    return math.sqrt(entries) * 2.0**-62


def subnormal_error(entries: int, dtype: torch.dtype) -> float:
    """The length that a vector of so many entries may gain or lose where they are subnormal, beyond relative rounding.

    They are rounded to a grid, or flushed to zero, and a large vector on the other side of a product can make that
    matter.
    """
    return math.sqrt(entries) * smallest_normal(dtype)
