r"""Gaussian noise where the values are, from ChaCha20 or Philox: `add_normal_` draws, scales and adds in one pass.

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

On a GPU a Triton kernel does all of it. On a CPU the words come from OpenSSL (Philox's from randomgen) and the rest is
numpy's vectorised operations, on as many threads as torch uses; the result does not depend on how many.
`tacit.core.compiled_noise` does the same with ChaCha20 faster where there is a compiler. Float64 values on a GPU are
drawn on the CPU and copied: a float64 gradient is a test or a small model.
"""

import dataclasses
import functools
import importlib.util
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.core import chacha, philox
from tacit.core.chacha import Nonce, Words
from tacit.core.errors import InputError, UnsupportedError
from tacit.core.validation import check_non_negative

Floats = npt.NDArray[np.floating]
WholeNumbers = npt.NDArray[np.signedinteger]
Source = Callable[[npt.NDArray[np.uint8], Words, Nonce, int], None]
"""Writes the blocks of a generator, see `tacit.core.chacha.write_keystream`."""

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
TILE_BLOCKS = 128  # normal k of block j in a tile goes to value 128 k + j of the tile: part of the noise's definition
_CHUNK_TILES = 104  # worked on at once by a thread: long beside what a call costs, and little enough for its cache


def key_tensor(key: bytes, *, device: torch.device | str) -> Tensor:
    """The key, from `Randomness.noise_key`, as the tensor of eight int32 words that `add_normal_` takes."""
    return torch.from_numpy(chacha.key_words(key).view(np.int32)).to(device)


def add_normal_(values: Tensor, scale: float, key: Tensor, nonce: Nonce, *, fast: bool = False) -> None:
    r"""Adds ``scale`` times standard normal noise to ``values``, in place: :math:`v_i \mathrel{+}= s z_i`.

    The noise of a value is a function of ``key``, ``nonce`` and its place, on every device the same up to rounding.
    The guarantee rests on the caller: a pair of key and nonce is used once. A key belongs to a step of a run
    (`Randomness.noise_key`), a nonce to a parameter (`tacit.core.chacha.nonces_for`).

    On a GPU nothing waits and nothing depends on the key's value: a CUDA graph may be captured once and replayed after
    a new key was copied into ``key``. ``scale``, ``nonce`` and the size are fixed in the capture.

    Edge cases: no values, no noise; ``scale=0`` leaves the values as they are. The module's docstring states the law.

    Args:
        values: a contiguous tensor of float16, bfloat16, float32 or float64.
        scale: the standard deviation, finite and at least 0; rounded to float32 unless values are float64.
        key: eight int32 words on the device of ``values``, see `key_tensor`.
        nonce: three words of 32 bits, see `tacit.core.chacha.nonce_for`.
        fast: takes the words from `tacit.core.philox`, which is not cryptographic, and not from ChaCha20.
    """
    scale, nonce = checked(values, scale, key, nonce)
    if values.numel() == 0:
        return
    if values.is_cuda and values.dtype != torch.float64 and _has_triton():
        from tacit.core.kernels import chacha_normal

        with torch.cuda.device(values.device):
            chacha_normal.add_normal_(values, scale, key, nonce, fast=fast)
    else:
        _add_on_cpu(values, scale, key, nonce, philox.write_keystream if fast else chacha.write_keystream)


def checked(values: Tensor, scale: float, key: Tensor, nonce: Nonce) -> tuple[float, Nonce]:
    """Refuses arguments that `add_normal_` does not take; returns scale and nonce as Python's own numbers."""
    _check(values, key)
    _check_count(values.numel(), _normals_per_block(values.dtype))
    return check_non_negative("scale", scale), chacha.check_nonce(nonce)


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


def _add_on_cpu(values: Tensor, scale: float, key: Tensor, nonce: Nonce, write: Source) -> None:
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
        _add_shares(held.numpy(), scale, words, nonce, write)
        if held.data_ptr() != values.data_ptr():
            values.detach().copy_(held.view(values.shape))
        elif not values.is_inference():
            torch.autograd.graph.increment_version(values)  # numpy wrote, autograd must know


def _normals_per_block(dtype: torch.dtype | np.dtype[np.floating]) -> int:
    """Five pairs of 64 + 32 bits from the 512 bits of a block, or four pairs of 64 + 64 bits for float64."""
    return 8 if dtype.itemsize == 8 else 10


def _add_shares(values: Floats, scale: float, key: Words, nonce: Nonce, write: Source) -> None:
    """Deals chunks of about the same size to as many threads as torch uses, if there are enough values for them.

    Threads of our own meet once, where torch's would meet after each operation: on a busy machine that costs far more
    than the operations do. OpenSSL and numpy hold no lock of the interpreter while they compute.
    """
    tiles = _ceil_divide(values.size, TILE_BLOCKS * _normals_per_block(values.dtype))
    threads = max(1, min(torch.get_num_threads(), tiles // _CHUNK_TILES))
    chunk_tiles = _ceil_divide(tiles, threads * _ceil_divide(tiles, threads * _CHUNK_TILES))
    firsts = range(0, tiles, chunk_tiles)
    add = functools.partial(_add_chunks, values, scale, key, nonce, write, chunk_tiles)
    if threads == 1:
        add(firsts)
        return
    with ThreadPoolExecutor(threads - 1) as pool:
        shares = [firsts[index::threads] for index in range(threads)]
        others = [pool.submit(add, share) for share in shares[1:]]
        add(shares[0])
        for other in others:
            other.result()


def _ceil_divide(count: int, by: int) -> int:
    return -(-count // by)


def _add_chunks(
    values: Floats, scale: float, key: Words, nonce: Nonce, write: Source, chunk_tiles: int, firsts: range
) -> None:
    """Adds to the chunks that begin at the tiles ``firsts``, one after another in the same memory."""
    tile = TILE_BLOCKS * _normals_per_block(values.dtype)
    draw = _Draw.prepare(chunk_tiles, values.dtype)
    for first in firsts:
        part = values[first * tile : (first + chunk_tiles) * tile]
        words = draw.stream[: TILE_BLOCKS * _ceil_divide(part.size, tile)]
        write(words.view(np.uint8).reshape(-1), key, nonce, first * TILE_BLOCKS)
        _compute(draw)
        _add_tiles(part, scale, draw.radii, draw.sines)


def _add_tiles(values: Floats, scale: float, radii: Floats, sines: Floats) -> None:
    """Scales the radii, turns sines into noise, both in place, and adds it: normal k of block j to value 128 k + j."""
    radii *= radii.dtype.type(scale * math.sqrt(2.0))
    sines *= radii
    noise = sines.transpose(1, 2, 0, 3)  # tile, pair, half of a pair, block
    tile = 2 * radii.shape[1] * TILE_BLOCKS
    whole, rest = divmod(values.size, tile)
    by_tile = values[: whole * tile].reshape(whole, *noise.shape[1:])
    by_tile += noise[:whole]
    if rest:
        values[whole * tile :] += noise[whole].reshape(-1)[:rest]


@dataclasses.dataclass(frozen=True)
class _Draw:
    """The memory of a chunk, as the views that its computation takes: the same for every chunk.

    A slot holds a number for each pair of normals, in shape (tiles, pairs of a block, 128): a whole number first, and
    floats of the same width in its memory when it is no longer needed.
    """

    stream: Words  # (blocks, 16), as the cipher writes it
    slots: WholeNumbers  # four: the radius or its two words, the angle, and a spare one
    turns: WholeNumbers  # two more
    radii: Floats  # in the second turn's memory
    sines: Floats  # in that of the last two slots

    @classmethod
    def prepare(cls, tiles: int, dtype: np.dtype[np.floating]) -> "_Draw":
        whole_number = np.int64 if dtype == np.float64 else np.int32
        stream = np.empty((tiles * TILE_BLOCKS, chacha.BLOCK_WORDS), dtype=np.uint32)
        slots = np.empty((4, tiles, _normals_per_block(dtype) // 2, TILE_BLOCKS), dtype=whole_number)
        turns = np.empty_like(slots[:2])
        return cls(stream, slots, turns, turns[1].view(dtype), slots[2:].view(dtype))


def _compute(draw: _Draw) -> None:
    """Of every pair the radius over sqrt(2), and both sines with their signs."""
    if draw.radii.dtype == np.float64:
        _take_wide_words(draw)
    else:
        _take_words(draw)
    _compute_sines(draw)
    _compute_radii(draw)


def _take_words(draw: _Draw) -> None:
    """High word of the radius, low word and angle, into a slot each; the last word of a block is left over."""
    words = draw.stream.view(np.int32).reshape(-1, TILE_BLOCKS, chacha.BLOCK_WORDS)
    for index in range(3):
        draw.slots[index] = words[:, :, index:15:3].swapaxes(1, 2)


def _take_wide_words(draw: _Draw) -> None:
    """64-bit radii into slot 0, 64-bit angles into slot 2; of their two words the high one comes first."""
    words = draw.stream.view(np.int32).reshape(-1, TILE_BLOCKS, chacha.BLOCK_WORDS)
    halves = draw.slots.view(np.int32)
    for slot in (0, 2):
        halves[slot, :, :, 1::2] = words[:, :, slot::4].swapaxes(1, 2)
        halves[slot, :, :, 0::2] = words[:, :, slot + 1 :: 4].swapaxes(1, 2)


def _compute_sines(draw: _Draw) -> None:
    """sin and cos of the angles, each as the sine of a number that is exact near its own zero.

    The whole number k stands for (k + 1/2) 2^(2 - bits) quarter turns, so that its complement ~k is its negative.
    """
    signs, turns, sines = draw.slots[2:], draw.turns, draw.sines
    bits = 8 * turns.itemsize
    top = (1 << (bits - 2)) - 1
    np.bitwise_and(signs[0], top, out=turns[0])
    np.bitwise_xor(turns[0], top, out=turns[1])
    np.left_shift(signs[0], 1, out=signs[1])
    signs >>= bits - 1
    turns ^= signs
    unit = 0.5 * math.pi * 2.0 ** (2 - bits)
    sines[:] = turns
    sines *= unit
    sines += 0.5 * unit
    np.sin(sines, out=sines)


def _compute_radii(draw: _Draw) -> None:
    r"""sqrt(-ln u), to full relative precision near u = 0 and u = 1 alike.

    First :math:`v = (m + 1/2) / 2^{64}` with m signed, which is u below 1/2 and u - 1 above; then, with w the rounded
    u, :math:`-\ln u = -\ln w + (w - u) / u` up to :math:`(w - u)^2`. The difference w - u is exact, and its division by
    u, which is near 1 wherever it matters, is left out.
    """
    rounded = draw.radii
    v, excess = draw.turns[0].view(rounded.dtype), draw.slots[0].view(rounded.dtype)
    if v.dtype == np.float64:
        v[:] = draw.slots[0]
        v *= 2.0**-64
        v += 2.0**-65
    else:
        # The low word is taken as signed too and carries into the high one, so that no sum cancels. From 2^31 - 1 the
        # high one wraps round to -2^31: v = 1/2 or -1/2, which are the same u.
        high, low = draw.slots[:2]
        high -= np.right_shift(low, 31, out=draw.turns[0])
        v[:], rounded[:] = high, low
        rounded *= 2.0**-64
        rounded += 2.0**-65
        v *= 2.0**-32
        v += rounded
    np.floor(v, out=excess)
    np.subtract(v, excess, out=rounded)
    excess += rounded
    excess -= v
    np.log(rounded, out=rounded)
    np.subtract(excess, rounded, out=rounded)
    np.sqrt(rounded, out=rounded)
