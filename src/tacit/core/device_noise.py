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

On a GPU a Triton kernel does all of it. On a CPU the words come from OpenSSL and the rest is a sequence of torch's
vectorised operations, which share it among torch's threads; the result does not depend on how many. Float64 values on a
GPU are drawn on the CPU and copied: a float64 gradient is a test or a small model.
"""

import dataclasses
import functools
import importlib.util
import math

import numpy as np
import torch
from torch import Tensor

from tacit.core import chacha
from tacit.core.chacha import Nonce, Words
from tacit.core.errors import InputError, UnsupportedError
from tacit.core.validation import check_non_negative

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_TILE_BLOCKS = 128  # normal k of block j in a tile goes to value 128 k + j of the tile: part of the noise's definition
_CHUNK_TILES = 128  # what is worked on at once: large beside the cost of a call, small beside the cache


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
    """The kernel's twin; values elsewhere are copied to the CPU and back, which a CUDA graph cannot hold."""
    if values.is_cuda and torch.cuda.is_current_stream_capturing():
        raise UnsupportedError(
            f"values: {values.dtype} noise on this GPU is drawn on the CPU, which a CUDA graph cannot capture. "
            "Install Triton and use float32, or run the step without a graph."
        )
    words = key.cpu().numpy().view(np.uint32)
    precision = torch.float64 if values.dtype == torch.float64 else torch.float32
    with torch.inference_mode():
        held = values.detach().to(device="cpu", dtype=precision).view(-1)  # the values themselves where nothing differs
        _add_chunks(held, scale, words, nonce)
        if held.data_ptr() != values.data_ptr():
            values.detach().copy_(held.view(values.shape))


def _normals_per_block(dtype: torch.dtype) -> int:
    """Five pairs of 64 + 32 bits from the 512 bits of a block, or four pairs of 64 + 64 bits for float64."""
    return 8 if dtype == torch.float64 else 10


def _add_chunks(values: Tensor, scale: float, key: Words, nonce: Nonce) -> None:
    """Chunk by chunk, all of about the same size, in the same memory."""
    tile = _TILE_BLOCKS * _normals_per_block(values.dtype)
    tiles = _ceil_divide(values.numel(), tile)
    chunk_tiles = _ceil_divide(tiles, _ceil_divide(tiles, _CHUNK_TILES))
    draw = _Draw.prepare(chunk_tiles, values.dtype)
    for first in range(0, tiles, chunk_tiles):
        words = draw.stream[: _TILE_BLOCKS * (tiles - first)]
        chacha.write_keystream(words.view(np.uint8).reshape(-1), key, nonce, first * _TILE_BLOCKS)
        _compute(draw)
        _add_tiles(values[first * tile : (first + chunk_tiles) * tile], scale, draw.radii, draw.sines)


def _ceil_divide(count: int, by: int) -> int:
    return -(-count // by)


def _add_tiles(values: Tensor, scale: float, radii: Tensor, sines: Tensor) -> None:
    """Adds to whole tiles where they lie, and to the last, if values end within it, by way of a copy."""
    tile = 2 * radii.shape[1] * _TILE_BLOCKS
    whole, rest = divmod(values.numel(), tile)
    inside, outside = values[: whole * tile], values[whole * tile :]
    if whole:
        by_tile = inside.view(whole, radii.shape[1], 2, _TILE_BLOCKS).permute(2, 0, 1, 3)
        by_tile.addcmul_(radii[:whole], sines[:, :whole], value=scale * math.sqrt(2.0))
    if rest:
        padded = values.new_zeros(tile)
        padded[:rest] = outside
        _add_tiles(padded, scale, radii[whole:], sines[:, whole:])
        outside.copy_(padded[:rest])


@dataclasses.dataclass(frozen=True)
class _Draw:
    """The memory of a chunk, as the views that its computation takes: the same for every chunk.

    A slot holds a number for each pair of normals, in shape (tiles, pairs of a block, 128): first a whole number, then
    the float of the same width that takes its place.
    """

    stream: Words  # (blocks, 16), as the cipher writes it
    taken: tuple[tuple[Tensor, Tensor], ...]  # views of slots, and of the words that they take from the stream
    slots: tuple[Tensor, ...]  # four: the radius or its two words, the angle, and a spare one
    signs: Tensor  # the last two slots, as one
    turns: Tensor  # two more
    uniforms: Tensor  # the first slot, or the first two, as whole numbers
    radii: Tensor
    sines: Tensor

    @classmethod
    def prepare(cls, tiles: int, dtype: torch.dtype) -> "_Draw":
        wide = dtype == torch.float64
        pairs = _normals_per_block(dtype) // 2
        stream = np.empty((tiles * _TILE_BLOCKS, chacha.BLOCK_WORDS), dtype=np.uint32)
        words = torch.from_numpy(stream.view(np.int32)).view(tiles, _TILE_BLOCKS, chacha.BLOCK_WORDS)
        shape, whole_numbers = (tiles, pairs, _TILE_BLOCKS), torch.int64 if wide else torch.int32
        slots = torch.empty(4, *shape, dtype=whole_numbers, device="cpu")
        turns = torch.empty(2, *shape, dtype=whole_numbers, device="cpu")
        return cls(
            stream=stream,
            taken=_wide_words(words, slots) if wide else _narrow_words(words, slots),
            slots=tuple(slots),
            signs=slots[2:],
            turns=turns,
            uniforms=slots[0] if wide else slots[:2],
            radii=slots[1].view(dtype),
            sines=turns.view(dtype),
        )


def _narrow_words(words: Tensor, slots: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
    """High word of the radius, low word and angle, into a slot each; the last word of a block is left over."""
    return ((slots[:3], words[:, :, :15].view(-1, _TILE_BLOCKS, 5, 3).permute(3, 0, 2, 1)),)


def _wide_words(words: Tensor, slots: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
    """64-bit radii into slot 0, 64-bit angles into slot 2; of their two words the high one comes first."""
    high, low = words.view(-1, _TILE_BLOCKS, 4, 2, 2).permute(4, 3, 0, 2, 1)
    halves = slots[::2].view(torch.int32).view(*slots[::2].shape, 2)
    return ((halves[..., 0], low), (halves[..., 1], high))


def _compute(draw: _Draw) -> None:
    """Of every pair the radius over sqrt(2), and both sines with their signs."""
    for slots, words in draw.taken:
        slots.copy_(words)
    _compute_sines(draw)
    _compute_radii(draw)


def _compute_sines(draw: _Draw) -> None:
    """sin and cos of the angles, each as the sine of a number that is exact near its own zero.

    The whole number k stands for (k + 1/2) 2^(2 - bits) quarter turns, so that its complement ~k is its negative.
    """
    bits = 8 * draw.turns.dtype.itemsize
    angle, shifted = draw.slots[2:]
    part, mirrored = draw.turns
    top = _constant((1 << (bits - 2)) - 1, angle.dtype)
    torch.bitwise_and(angle, top, out=part)
    torch.bitwise_xor(part, top, out=mirrored)
    torch.bitwise_left_shift(angle, _constant(1, angle.dtype), out=shifted)
    draw.turns.bitwise_xor_(draw.signs.bitwise_right_shift_(_constant(bits - 1, angle.dtype)))
    unit = 0.5 * math.pi * 2.0 ** (2 - bits)
    sines = draw.sines.copy_(draw.turns)
    torch.add(_constant(0.5 * unit, sines.dtype), sines, alpha=unit, out=sines).sin_()


def _compute_radii(draw: _Draw) -> None:
    r"""sqrt(-ln u), to full relative precision near u = 0 and u = 1 alike.

    First :math:`v = (m + 1/2) / 2^{64}` with m signed, which is u below 1/2 and u - 1 above; then, with w the rounded
    u, :math:`-\ln u = -\ln w + (w - u) / u` up to :math:`(w - u)^2`. The difference w - u is exact, and its division by
    u, which is near 1 wherever it matters, is left out.
    """
    first, rounded, excess, carry = draw.slots
    floats = draw.radii.dtype
    v, rounded_float, excess = first.view(floats), draw.radii, excess.view(floats)
    half = _constant(2.0**-65, floats)
    if floats == torch.float64:
        v.copy_(first)
        torch.add(half, v, alpha=2.0**-64, out=v)
    else:
        # The low word is taken as signed too and carries into the high one, so that no sum cancels. From 2^31 - 1 the
        # high one wraps round to -2^31: v = 1/2 or -1/2, which are the same u.
        torch.bitwise_right_shift(rounded, _constant(31, torch.int32), out=carry)
        first.sub_(carry)
        draw.uniforms.view(floats).copy_(draw.uniforms)
        torch.add(half, rounded_float, alpha=2.0**-64, out=rounded_float)
        torch.add(rounded_float, v, alpha=2.0**-32, out=v)
    torch.floor(v, out=excess)
    torch.sub(v, excess, out=rounded_float)
    excess.add_(rounded_float).sub_(v)
    torch.sub(excess, rounded_float.log_(), out=rounded_float).sqrt_()


@functools.cache
def _constant(value: float, dtype: torch.dtype) -> Tensor:
    """A tensor costs a call less time than a number that it must first convert."""
    with torch.inference_mode(False):
        return torch.full((), value, dtype=dtype, device="cpu")
