"""How many bits matrix products keep, for one measurement."""

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Ten-bit products on a GPU under ``tf32``, full ones under ``float32``; as before afterwards.

    bfloat16 is autocast, which the losses enter by themselves; what stays in float32 there takes TF32, as anyone who
    trains in bfloat16 would have it.
    """
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    ten_bits = precision != "float32"
    torch.set_float32_matmul_precision("high" if ten_bits else "highest")
    torch.backends.cudnn.allow_tf32 = ten_bits
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
