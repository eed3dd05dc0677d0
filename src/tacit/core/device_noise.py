r"""Gaussian noise where the values are, from ChaCha20: `add_normal_` draws, scales and adds in one pass.

The law of the noise. A pair of normals takes a radius and an angle (Box and Muller, 1958):

.. math::  z_1 = \pm\sqrt{-2 \ln u}\,\sin(\tfrac{\pi}{2} t), \qquad z_2 = \pm\sqrt{-2 \ln u}\,\cos(\tfrac{\pi}{2} t),

with :math:`u = (m + 1/2) / 2^{64}` from 64 bits, and :math:`t = (k + 1/2) / 2^{30}` and two signs from 32 bits (for
float64 values :math:`2^{62}`, from 64 bits). All of these become floats with full relative precision at both ends of
their range, so that

- tail: the radius reaches :math:`\sqrt{130 \ln 2} = 9.49`, and what lies beyond has probability :math:`2^{-65}` a pair.
  For n values the missing tail costs :math:`\eta \le n\,2^{-66}` in total variation, and
  :math:`(1 + e^\varepsilon)\,\eta` in delta;
- granularity: before rounding, the angles lie :math:`2^{-30}` quarter turns apart and a small radius :math:`r` has
  neighbours :math:`2^{-64}/r` away. The smallest normal is 1.7e-19, and none is zero;
- rounding: the noise is right to a few units in the last place of float32, or of float64 for float64 values.

What this does not claim: that adding floats hides the low bits of a value as a real-valued Gaussian would (Mironov,
2012, https://doi.org/10.1145/2382196.2382264). To keep to the best that floats can do, noise is never coarser than what
it is added to: float64 values get float64 noise, and 16-bit values are added to in float32 and rounded once.

Float64 values on a GPU take the plain twin on the CPU, slow but right: a float64 gradient is a test or a small model.
"""

import functools
import importlib.util

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.core import chacha
from tacit.core.chacha import Nonce, Words
from tacit.core.errors import InputError, UnsupportedError
from tacit.core.validation import check_non_negative

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_TILE_BLOCKS = 128  # normal k of block j in a tile goes to value 128 k + j of the tile: part of the noise's definition
_CHUNK_TILES = 32  # what the twin works on at once stays in a core's cache


def key_tensor(key: bytes, *, device: torch.device | str) -> Tensor:
    """The key, from `Randomness.device_key`, as the tensor of eight int32 words that `add_normal_` takes."""
    return torch.from_numpy(chacha.key_words(key).view(np.int32)).to(device)


def add_normal_(values: Tensor, scale: float, key: Tensor, nonce: Nonce) -> None:
    r"""Adds ``scale`` times standard normal noise to ``values``, in place: :math:`v_i \mathrel{+}= s z_i`.

    The noise of a value is a function of ``key``, ``nonce`` and its place, on every device the same up to rounding.
    The guarantee rests on the caller: a pair of key and nonce is used once. A key belongs to a step of a run
    (`Randomness.device_key`), a nonce to a parameter (`tacit.core.chacha.nonces_for`).

    On a GPU nothing waits and nothing depends on the key's value: a CUDA graph may be captured once and replayed after
    a new key was copied into ``key``. ``scale``, ``nonce`` and the size are fixed in the capture.

    Edge cases: no values, no noise; ``scale=0`` leaves the values as they are. The module's docstring states the law.

    Args:
        values: a contiguous tensor of float16, bfloat16, float32 or float64.
        scale: the standard deviation, finite and at least 0; rounded to float32 unless values are float64.
        key: eight int32 words on the device of ``values``, see `key_tensor`.
        nonce: three words of 32 bits, see `tacit.core.chacha.nonce_for`.
    """
    _check(values, key)
    scale, nonce = check_non_negative("scale", scale), chacha.check_nonce(nonce)
    _check_count(values.numel(), _normals_per_block(values.dtype))
    if values.numel() == 0:
        return
    if values.is_cuda and values.dtype != torch.float64 and _has_triton():
        from tacit.core.kernels import chacha_normal

        with torch.cuda.device(values.device):
            chacha_normal.add_normal_(values, scale, key, nonce)
    else:
        _add_on_cpu(values, scale, key, nonce)


def _check(values: Tensor, key: Tensor) -> None:
    if values.dtype not in _DTYPES:
        raise InputError(f"values: has dtype {values.dtype}, must be a real floating type. Convert it first.")
    if not values.is_contiguous():
        raise InputError(f"values: has strides {values.stride()}, must be contiguous. Pass a permuted view that is.")
    if key.dtype != torch.int32 or key.shape != (8,) or not key.is_contiguous():
        raise InputError(f"key: is {key.dtype} of shape {tuple(key.shape)}, must be 8 int32 words. Use key_tensor().")
    if key.device != values.device:
        raise InputError(f"key: is on {key.device}, must be on {values.device} as the values are. Move it there.")


def _check_count(count: int, per_block: int) -> None:
    if count > chacha.MAX_BLOCKS * per_block:
        raise UnsupportedError(
            f"values: has {count} elements, more than the {chacha.MAX_BLOCKS * per_block} that a 32-bit block counter "
            "reaches. Split it, with a nonce for each part."
        )


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def _add_on_cpu(values: Tensor, scale: float, key: Tensor, nonce: Nonce) -> None:
    """The plain twin; values elsewhere are copied to the CPU and back, which a CUDA graph cannot hold."""
    if values.is_cuda and torch.cuda.is_current_stream_capturing():
        raise UnsupportedError(
            f"values: {values.dtype} noise on this GPU is drawn on the CPU, which a CUDA graph cannot capture. "
            "Install Triton and use float32, or run the step without a graph."
        )
    words = key.cpu().numpy().view(np.uint32)
    precision = torch.float64 if values.dtype == torch.float64 else torch.float32
    with torch.no_grad():
        held = values.detach().to(device="cpu", dtype=precision).view(-1)  # the values themselves where nothing differs
        _add_chunks(held.numpy(), scale, words, nonce)
        if held.data_ptr() != values.data_ptr():
            values.copy_(held.view(values.shape))


def _add_chunks(values: npt.NDArray[np.floating], scale: float, key: Words, nonce: Nonce) -> None:
    chunk_blocks = _CHUNK_TILES * _TILE_BLOCKS
    chunk = chunk_blocks * _normals_per_block(torch.float64 if values.dtype == np.float64 else torch.float32)
    for index, start in enumerate(range(0, values.size, chunk)):
        part = values[start : start + chunk]
        tiles = min(_CHUNK_TILES, -(-part.size // (chunk // _CHUNK_TILES)))
        words = chacha.keystream(key, nonce, index * chunk_blocks, tiles * _TILE_BLOCKS)
        part += values.dtype.type(scale) * normals(words, values.dtype)[: part.size]


def _normals_per_block(dtype: torch.dtype) -> int:
    """Five pairs of 64 + 32 bits from the 512 bits of a block, or four pairs of 64 + 64 bits for float64."""
    return 8 if dtype == torch.float64 else 10


def normals(words: Words, dtype: npt.DTypeLike) -> npt.NDArray[np.floating]:
    """Standard normals from whole tiles of ChaCha20 blocks, of shape (16, blocks), in the order of the values.

    Computed in float64 and rounded once: the twin is the reference for what the kernel does in float32.
    """
    wide = words.astype(np.uint64)
    if np.dtype(dtype) == np.float64:
        high, low, angle = wide[0::4], wide[1::4], (wide[2::4] << np.uint64(32)) | wide[3::4]
        first, second = _box_muller((high << np.uint64(32)) | low, angle, angle_bits=64)
    else:
        high, low, angle = wide[0:15:3], wide[1:15:3], wide[2:15:3]
        first, second = _box_muller((high << np.uint64(32)) | low, angle, angle_bits=32)
    by_block = np.stack((first, second), axis=1).astype(dtype).reshape(-1, words.shape[1])
    by_tile = by_block.reshape(by_block.shape[0], -1, _TILE_BLOCKS)
    return by_tile.swapaxes(0, 1).reshape(-1)


def _box_muller(
    radius: npt.NDArray[np.uint64], angle: npt.NDArray[np.uint64], *, angle_bits: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Pairs of normals from whole numbers of 64 bits (radius) and of ``angle_bits`` (angle)."""
    mirrored = radius >> np.uint64(63) != 0
    near = (np.where(mirrored, ~radius, radius).astype(np.float64) + 0.5) * 2.0**-64
    length = np.sqrt(-2.0 * np.where(mirrored, np.log1p(-near), np.log(near)))
    top = np.uint64((1 << (angle_bits - 2)) - 1)
    part = angle & top
    first = length * _sin_quarter_turns(part, angle_bits)
    second = length * _sin_quarter_turns(top - part, angle_bits)
    signs = angle >> np.uint64(angle_bits - 2)
    return np.where(signs >= 2, -first, first), np.where(signs & np.uint64(1) != 0, -second, second)


def _sin_quarter_turns(part: npt.NDArray[np.uint64], angle_bits: int) -> npt.NDArray[np.float64]:
    return np.sin((part.astype(np.float64) + 0.5) * (0.5 * np.pi * 2.0 ** (2 - angle_bits)))
