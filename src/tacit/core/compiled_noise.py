"""The arithmetic of `tacit.core.device_noise` as one compiled loop for the CPU, on the threads that torch uses.

Bits and law are the same, and so is the noise up to rounding. Compiling takes a few seconds, so this is for runs that
compile their step as well.
"""

import functools
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.core import chacha
from tacit.core.chacha import Nonce
from tacit.core.device_noise import TILE_BLOCKS, add_normal_, add_normal_from_tile_

_TILES = 51  # in a chunk of 65,280 values: long beside what a call costs, and just below a power of two as layers are
_PAIRS = 5
_CHUNK = _TILES * TILE_BLOCKS * 2 * _PAIRS
_UNIT = 0.5 * math.pi * 2.0**-30
_TOP = (1 << 30) - 1

Adder = Callable[[Tensor, float, Tensor, Nonce], None]
"""A function with the arguments and the effect of `add_normal_`."""


def compiled_adder() -> Adder:
    """`add_normal_` with its arithmetic compiled, for float32 values on the CPU; all others take the ordinary way.

    Raises whatever the compiler does where there is none.
    """
    draw = _compiled_loop()
    stream = np.empty((_TILES * TILE_BLOCKS, chacha.BLOCK_WORDS), dtype=np.uint32)
    words = torch.zeros(_TILES, chacha.BLOCK_WORDS, TILE_BLOCKS, dtype=torch.int32)
    octets = stream.view(np.uint8).reshape(-1)
    blocks = torch.from_numpy(stream.view(np.int32)).view(_TILES, TILE_BLOCKS, chacha.BLOCK_WORDS)

    def add(values: Tensor, scale: float, key: Tensor, nonce: Nonce) -> None:
        whole = values.numel() // _CHUNK
        if values.device.type != "cpu" or values.dtype != torch.float32 or not whole or not values.is_contiguous():
            add_normal_(values, scale, key, nonce)
            return
        key_words = key.numpy().view(np.uint32)
        chunks = values.detach().view(-1)[: whole * _CHUNK].view(whole, _CHUNK)
        length = torch.tensor(scale * math.sqrt(2.0))
        with torch.no_grad():
            for number, chunk in enumerate(chunks):
                chacha.write_keystream(octets, key_words, nonce, number * _TILES * TILE_BLOCKS)
                words.copy_(blocks.transpose(1, 2))
                draw(words, chunk, length)
        add_normal_from_tile_(values, scale, key, nonce, whole * _TILES)

    return add


@functools.cache
def _compiled_loop() -> Callable[[Tensor, Tensor, Tensor], object]:
    """`_add_chunk_` for one chunk, compiled once a process, and without guards that would take as long as the chunk."""
    words = torch.zeros(_TILES, chacha.BLOCK_WORDS, TILE_BLOCKS, dtype=torch.int32)
    shapes = (words, torch.zeros(_CHUNK), torch.zeros(()))
    with torch.no_grad():
        loop: Callable[[Tensor, Tensor, Tensor], object] = torch._inductor.compile(
            make_fx(_add_chunk_)(*shapes), list(shapes), {"cpp.vec_isa_ok": True}
        )
    return loop


def _add_chunk_(words: Tensor, values: Tensor, length: Tensor) -> None:
    """``words``: int32 of shape (tiles, 16, 128). The same numbers as in `device_noise`, in the same order.

    ``length`` is the scale times the square root of two.
    """
    high, low, angle = words[:, 0:15:3], words[:, 1:15:3], words[:, 2:15:3]
    part = angle & _TOP
    first = torch.sin((part ^ (angle >> 31)).to(torch.float32) * _UNIT + 0.5 * _UNIT)
    second = torch.sin(((part ^ _TOP) ^ ((angle << 1) >> 31)).to(torch.float32) * _UNIT + 0.5 * _UNIT)
    u = (high - (low >> 31)).to(torch.float32) * 2.0**-32 + (low.to(torch.float32) * 2.0**-64 + 2.0**-65)
    floor = torch.floor(u)
    rounded = u - floor
    radius = torch.sqrt((floor + rounded - u) - torch.log(rounded)) * length
    by_pair = values.view(-1, _PAIRS, 2, TILE_BLOCKS)
    by_pair[:, :, 0].add_(first * radius)
    by_pair[:, :, 1].add_(second * radius)
