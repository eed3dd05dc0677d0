"""The arithmetic of `tacit.core.device_noise` as machine code for the CPU, on the threads that torch uses.

Bits and law are the same, and so is the noise up to rounding. The source is ``chacha_normal.cpp``, which
`tacit.core.native` compiles.
"""

import ctypes
import functools
import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from tacit.core import native
from tacit.core.chacha import Nonce
from tacit.core.device_noise import add_normal_, checked
from tacit.core.errors import UnsupportedError

_SOURCE = Path(__file__).with_name("chacha_normal.cpp")
_CHECKED = 3 * 1280 + 7  # values: tiles, and a part of one
_TOLERANCE = 1e-5

Adder = Callable[[Tensor, float, Tensor, Nonce], None]
"""A function with the arguments and the effect of `add_normal_`."""


def compiled_adder() -> Adder:
    """`add_normal_` with its arithmetic compiled, for float32 values on the CPU; all others take the ordinary way.

    Raises whatever the compiler does, and `UnsupportedError` where there is none or its noise is not the ordinary one.
    """
    add = _compiled()
    key, nonce = torch.arange(8, dtype=torch.int32), (1, 2, 3)
    found, expected = torch.zeros(_CHECKED), torch.zeros(_CHECKED)
    add(found, 1.0, key, nonce)
    add_normal_(expected, 1.0, key, nonce)
    if not torch.allclose(found, expected, rtol=_TOLERANCE, atol=0.0):
        raise UnsupportedError("compiled noise: is not the ordinary one on this machine. Use another compiler (CXX).")
    return add


@functools.cache
def _compiled() -> Adder:
    draw = _load()

    def add(values: Tensor, scale: float, key: Tensor, nonce: Nonce) -> None:
        if values.device.type != "cpu" or values.dtype != torch.float32:
            add_normal_(values, scale, key, nonce)
            return
        scale, nonce = checked(values, scale, key, nonce)
        draw(values.data_ptr(), values.numel(), scale * math.sqrt(2.0), key.data_ptr(), (ctypes.c_uint32 * 3)(*nonce))
        if not values.is_inference():
            torch.autograd.graph.increment_version(values)  # written behind autograd's back

    return add


def _load() -> Callable[..., None]:
    draw = native.load(_SOURCE, flags=("-fopenmp",)).tacit_add_normal
    draw.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p)
    draw.restype = None
    found: Callable[..., None] = draw
    return found
