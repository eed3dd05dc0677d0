"""The noise in plain numpy, as the law reads: right by fifty digits, and the oracle of what is fast on a CPU."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
from box_muller import ENDS, exact_pair
from hypothesis import given
from hypothesis import strategies as st

from tacit.core import chacha, device_noise
from tacit.core.device_noise import add_normal_, key_tensor

TILE_BLOCKS = 128
KEY = key_tensor(bytes(range(32)), device="cpu")
NONCE = chacha.nonce_for("weight")
CLOSE = {np.float32: 6e-7, np.float64: 1.2e-15}  # five units in the last place
ROUNDED_ONCE = {np.float32: 2e-7, np.float64: 2e-15}
CHUNK = 1280 * device_noise._CHUNK_TILES
SIZES = [1, 127, 128, 1023, 1024, 1025, 1279, 1280, 1281, CHUNK - 1, CHUNK, CHUNK + 1, CHUNK + 1281, 2 * CHUNK + 5]
words32 = st.one_of(st.sampled_from(ENDS), st.integers(0, 2**32 - 1))


def reference_normals(words: chacha.Words, dtype: npt.DTypeLike) -> npt.NDArray[np.floating]:
    """Standard normals from whole tiles of ChaCha20 blocks, of shape (16, blocks), in the order of the values.

    Computed in float64 and rounded once.
    """
    wide = words.astype(np.uint64)
    if np.dtype(dtype) == np.float64:
        high, low, angle = wide[0::4], wide[1::4], (wide[2::4] << np.uint64(32)) | wide[3::4]
        first, second = _box_muller((high << np.uint64(32)) | low, angle, angle_bits=64)
    else:
        high, low, angle = wide[0:15:3], wide[1:15:3], wide[2:15:3]
        first, second = _box_muller((high << np.uint64(32)) | low, angle, angle_bits=32)
    by_block = np.stack((first, second), axis=1).astype(dtype).reshape(-1, words.shape[1])
    by_tile = by_block.reshape(by_block.shape[0], -1, TILE_BLOCKS)
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


def fast_normals(words: chacha.Words, dtype: npt.DTypeLike) -> npt.NDArray[np.floating]:
    """What `add_normal_` adds on a CPU where the cipher gives these words."""
    values = np.zeros(words.shape[1] * (8 if dtype == np.float64 else 10), dtype=dtype)
    draw = device_noise._Draw.prepare(words.shape[1] // TILE_BLOCKS, values.dtype)
    draw.stream[:] = words.T
    device_noise._compute(draw)
    device_noise._add_tiles(values, 1.0, draw.radii, draw.sines)
    return values


def tile_of(high: int, low: int, angle: int, angle_low: int = 0, *, wide: bool = False) -> chacha.Words:
    """A tile whose blocks repeat one radius and one angle."""
    pattern = [high, low, angle, angle_low] * 4 if wide else [high, low, angle] * 5 + [0]
    return np.tile(np.array(pattern, dtype=np.uint32)[:, None], (1, TILE_BLOCKS))


def extreme_words(blocks: int, seed: int) -> chacha.Words:
    """Words at random, half of them from the ends of the ranges and their neighbourhood."""
    rng = np.random.default_rng(seed)
    free = rng.integers(0, 2**32, (16, blocks), dtype=np.uint32)
    ends = rng.choice(np.array(ENDS, dtype=np.uint32), (16, blocks)) + rng.integers(0, 3, (16, blocks), dtype=np.uint32)
    return np.where(rng.random((16, blocks)) < 0.5, free, ends)


@pytest.mark.parametrize(
    ("normals", "close"), [(reference_normals, ROUNDED_ONCE), (fast_normals, CLOSE)], ids=["reference", "fast"]
)
@given(high=words32, low=words32, angle=words32, angle_low=words32)
def test_normals_equal_box_muller_with_fifty_digits(
    normals, close, high: int, low: int, angle: int, angle_low: int
) -> None:
    single = normals(tile_of(high, low, angle), np.float32)
    np.testing.assert_allclose(single[[0, 128]], exact_pair(high, low, angle, 32), rtol=close[np.float32])
    double = normals(tile_of(high, low, angle, angle_low, wide=True), np.float64)
    exact = exact_pair(high, low, (angle << 32) | angle_low, 64)
    np.testing.assert_allclose(double[[0, 128]], exact, rtol=close[np.float64])


@pytest.mark.parametrize("normals", [reference_normals, fast_normals], ids=["reference", "fast"])
def test_the_tail_reaches_beyond_nine_sigma_and_nothing_is_zero(normals) -> None:
    largest = normals(tile_of(0, 0, 2**30 - 1), np.float32)[0]
    assert largest == pytest.approx(np.sqrt(130 * np.log(2)), rel=1e-6)
    smallest = normals(tile_of(2**32 - 1, 2**32 - 1, 0), np.float32)[0]
    assert 0 < smallest == pytest.approx(1.703e-19, rel=1e-3)


def test_a_radius_from_32_bits_would_be_seen() -> None:
    """The planted near miss: it ends at 6.8 sigma, and the exact pair at the tail tells."""
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(np.sqrt(66 * np.log(2)), exact_pair(0, 0, 2**30 - 1, 32)[0], rtol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normals_equal_the_reference_at_the_ends_of_every_range(dtype: type[np.floating]) -> None:
    words = extreme_words(40 * TILE_BLOCKS, seed=5)
    fast, reference = fast_normals(words, dtype), reference_normals(words, dtype)
    np.testing.assert_allclose(fast, reference, rtol=CLOSE[dtype], atol=0)
    assert np.count_nonzero(np.abs(reference) > 9) > 10  # the far tail was there
    assert np.count_nonzero(np.abs(reference) < 1e-8) > 10  # and so were radii and angles next to zero


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_reference_rejects_words_in_another_place(dtype: type[np.floating]) -> None:
    words = extreme_words(2 * TILE_BLOCKS, seed=6)
    reference = reference_normals(words, dtype)
    for wrong in (np.roll(words, 1, axis=0), np.roll(words, 1, axis=1), words ^ np.uint32(2**31)):
        assert not np.allclose(fast_normals(wrong, dtype), reference, rtol=CLOSE[dtype], atol=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_value_k_times_128_plus_j_of_a_tile_is_normal_k_of_block_j(dtype: type[np.floating]) -> None:
    words = chacha.keystream(KEY.numpy().view(np.uint32), NONCE, 0, 3 * TILE_BLOCKS)
    per_block = 10 if dtype is np.float32 else 8
    drawn = fast_normals(words, dtype).reshape(3, per_block, TILE_BLOCKS)
    for block in (0, 1, 127, 128, 300):
        alone = fast_normals(np.repeat(words[:, block : block + 1], TILE_BLOCKS, axis=1), dtype)
        np.testing.assert_array_equal(drawn[block // 128, :, block % 128], alone.reshape(per_block, TILE_BLOCKS)[:, 0])


@pytest.fixture(scope="module", params=[np.float32, np.float64])
def reference(request: pytest.FixtureRequest) -> npt.NDArray[np.floating]:
    """The noise of the reference for the longest of `SIZES`, around 3."""
    per_block = 10 if request.param is np.float32 else 8
    blocks = -(-max(SIZES) // (per_block * TILE_BLOCKS)) * TILE_BLOCKS
    words = chacha.keystream(KEY.numpy().view(np.uint32), NONCE, 0, blocks)
    return request.param(3) + request.param(0.25) * reference_normals(words, request.param)


@pytest.mark.parametrize("count", SIZES)
def test_what_is_added_is_the_reference_for_every_size(reference: npt.NDArray[np.floating], count: int) -> None:
    guarded = torch.full((count + 40,), 3.0, dtype=torch.float64 if reference.dtype == np.float64 else torch.float32)
    add_normal_(guarded[:count], 0.25, KEY, NONCE)
    tolerance = 4 * np.finfo(reference.dtype).eps
    np.testing.assert_allclose(guarded[:count].numpy(), reference[:count], rtol=tolerance, atol=tolerance)
    assert (guarded[count:] == 3).all()
