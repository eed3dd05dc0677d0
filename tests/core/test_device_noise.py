"""Noise drawn where the values are: its law, its kernel against its twin, and no noise drawn twice."""

import hashlib
import random

import numpy as np
import pytest
import torch
from box_muller import ENDS, exact_pair
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tacit.core import chacha
from tacit.core.device_noise import add_normal_, key_tensor, normals
from tacit.core.errors import InputError, UnsupportedError
from tacit.core.randomness import Randomness

RNG = Randomness(unsafe_seed=11)
KEY = key_tensor(RNG.device_key("noise", 0), device="cpu")
NONCE = chacha.nonce_for("weight")
ACCEPT = 4.0  # standard deviations: the draws are fixed, so that a right generator passes always
REJECT = 5.0
DRAWS = 1_000_000
PRECISIONS = [torch.float32, torch.float64]


def noise(
    count: int, *, key: torch.Tensor = KEY, nonce: chacha.Nonce = NONCE, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    values = torch.zeros(count, dtype=dtype)
    add_normal_(values, 1.0, key, nonce)
    return values


def scores(drawn: np.ndarray) -> dict[str, float]:
    """Of independent standard normals: moments and tails in standard deviations from what is expected."""
    n = drawn.size
    squares = drawn * drawn
    sizes = np.abs(drawn)
    tails = {t: 2 * stats.norm.sf(t) for t in (0.01, 1.0, 3.0, 4.0)}
    return {
        "mean": drawn.mean() * np.sqrt(n),
        "variance": (squares.mean() - 1) * np.sqrt(n / 2),
        "skewness": (squares * drawn).mean() * np.sqrt(n / 15),
        "kurtosis": ((squares * squares).mean() - 3) * np.sqrt(n / 96),
        **{f"beyond {t}": ((sizes > t).mean() - p) / np.sqrt(p * (1 - p) / n) for t, p in tails.items()},
    }


def distance(drawn: np.ndarray) -> float:
    """Kolmogorov and Smirnov's statistic in units of its asymptotic law."""
    below = stats.norm.cdf(np.sort(drawn))
    return float(np.abs(below - (np.arange(drawn.size) + 0.5) / drawn.size).max() * np.sqrt(drawn.size))


def correlation(here: np.ndarray, there: np.ndarray) -> float:
    """In standard deviations of the correlation of independent values."""
    return float(np.corrcoef(here, there)[0, 1] * np.sqrt(here.size))


@pytest.fixture(scope="module", params=PRECISIONS, ids=str)
def drawn(request: pytest.FixtureRequest) -> np.ndarray:
    return noise(DRAWS, dtype=request.param).double().numpy()


def test_the_noise_is_standard_normal(drawn: np.ndarray) -> None:
    assert max(np.abs(list(scores(drawn).values()))) < ACCEPT
    assert stats.kstwobign.sf(distance(drawn)) > 1e-3


def test_near_misses_are_rejected(drawn: np.ndarray) -> None:
    assert abs(scores(0.98 * drawn)["variance"]) > REJECT
    assert stats.kstwobign.sf(distance(0.98 * drawn)) < 1e-6
    assert abs(scores(np.where(np.abs(drawn) > 4, drawn / 2, drawn))["beyond 4.0"]) > REJECT
    assert abs(scores(drawn + 0.01)["mean"]) > REJECT
    assert abs(scores(np.round(drawn * 32) / 32)["beyond 0.01"]) > REJECT


@pytest.mark.parametrize("lag", [1, 2, 127, 128, 129, 256, 640, 1024, 1280, 40_960])
def test_neighbours_pairs_and_tiles_are_uncorrelated(drawn: np.ndarray, lag: int) -> None:
    """Value i + 128 is the other half of the pair of value i; 1280 or 1024 values make a tile."""
    here, there = drawn[:-lag], drawn[lag:]
    for change in (np.asarray, np.square, np.abs, np.sign):
        assert abs(correlation(change(here), change(there))) < ACCEPT


def test_a_repeated_tile_is_seen(drawn: np.ndarray) -> None:
    repeated = np.concatenate((drawn[:1280], drawn[:1280], drawn[2560:4000]))
    assert correlation(repeated[:-1280], repeated[1280:]) > REJECT


def test_parameters_and_steps_are_independent_of_one_another() -> None:
    size = 200_000
    base = noise(size).numpy()
    others = [
        noise(size, nonce=chacha.nonce_for("bias")),
        noise(size, nonce=(NONCE[0] ^ 1, *NONCE[1:])),
        noise(size, key=key_tensor(RNG.device_key("noise", 1), device="cpu")),
        noise(size, key=KEY ^ torch.tensor([1, 0, 0, 0, 0, 0, 0, 0], dtype=torch.int32)),
    ]
    for other in others:
        assert abs(correlation(base, other.numpy())) < ACCEPT
        assert abs(correlation(base**2, other.numpy() ** 2)) < ACCEPT
        assert stats.kstwobign.sf(distance((base + other.numpy()) / np.sqrt(2))) > 1e-3


# The map from words to normals


def tile_of(high: int, low: int, angle: int, angle_low: int = 0, *, wide: bool = False) -> np.ndarray:
    """A tile whose blocks repeat one radius and one angle."""
    pattern = [high, low, angle, angle_low] * 4 if wide else [high, low, angle] * 5 + [0]
    return np.tile(np.array(pattern, dtype=np.uint32)[:, None], (1, 128))


words32 = st.one_of(st.sampled_from(ENDS), st.integers(0, 2**32 - 1))


@given(high=words32, low=words32, angle=words32, angle_low=words32)
def test_normals_equal_box_muller_with_fifty_digits(high: int, low: int, angle: int, angle_low: int) -> None:
    single = normals(tile_of(high, low, angle), np.float32)
    np.testing.assert_allclose(single[[0, 128]], exact_pair(high, low, angle, 32), rtol=2e-7)
    double = normals(tile_of(high, low, angle, angle_low, wide=True), np.float64)
    np.testing.assert_allclose(double[[0, 128]], exact_pair(high, low, (angle << 32) | angle_low, 64), rtol=2e-15)


def test_the_tail_reaches_beyond_nine_sigma_and_nothing_is_zero() -> None:
    largest = normals(tile_of(0, 0, 2**30 - 1), np.float32)[0]
    assert largest == pytest.approx(np.sqrt(130 * np.log(2)), rel=1e-6)
    smallest = normals(tile_of(2**32 - 1, 2**32 - 1, 0), np.float32)[0]
    assert 0 < smallest == pytest.approx(1.703e-19, rel=1e-3)


def test_a_radius_from_32_bits_would_be_seen() -> None:
    """The planted near miss: it ends at 6.8 sigma, and the exact pair at the tail tells."""
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(np.sqrt(66 * np.log(2)), exact_pair(0, 0, 2**30 - 1, 32)[0], rtol=2e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_value_k_times_128_plus_j_of_a_tile_is_normal_k_of_block_j(dtype: type[np.floating]) -> None:
    words = chacha.keystream(KEY.numpy().view(np.uint32), NONCE, 0, 3 * 128)
    per_block = 10 if dtype is np.float32 else 8
    drawn = normals(words, dtype).reshape(3, per_block, 128)
    for block in (0, 1, 127, 128, 300):
        alone = normals(np.repeat(words[:, block : block + 1], 128, axis=1), dtype).reshape(per_block, 128)[:, 0]
        np.testing.assert_array_equal(drawn[block // 128, :, block % 128], alone)


# The public function on the CPU


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("count", [1, 127, 1280, 1281, 40_960, 40_961, 100_000])
def test_a_value_has_the_same_noise_whatever_the_size(count: int, dtype: torch.dtype) -> None:
    whole = noise(120_000, dtype=dtype)
    assert torch.equal(noise(count, dtype=dtype), whole[:count])


def test_every_value_has_noise_of_its_own() -> None:
    whole = noise(120_000, dtype=torch.float64)
    assert whole.abs().unique().numel() == whole.numel()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_noise_is_scaled_added_in_place_and_rounded_once(dtype: torch.dtype) -> None:
    values = torch.linspace(-2, 2, 3 * 50 * 7).to(dtype).view(3, 50, 7)
    expected = values.to(torch.float64 if dtype == torch.float64 else torch.float32)
    expected = expected + 0.7 * noise(values.numel(), dtype=expected.dtype).view(values.shape)
    address = values.data_ptr()
    add_normal_(values, 0.7, KEY, NONCE)
    assert values.data_ptr() == address
    assert values.dtype == dtype
    torch.testing.assert_close(values, expected.to(dtype), rtol=2e-7 if expected.dtype == dtype else 0, atol=1e-7)


def test_float64_values_get_noise_with_all_their_bits() -> None:
    """Noise of float32 on float64 values would leave their low bits bare."""
    drawn = noise(10_000, dtype=torch.float64)
    assert (drawn.float().double() == drawn).sum() == 0


def test_edge_cases_of_size_and_scale() -> None:
    scalar, empty, held = torch.tensor(1.0), torch.zeros(0, 3), torch.randn(20)
    add_normal_(scalar, 1.0, KEY, NONCE)
    add_normal_(empty, 1.0, KEY, NONCE)
    assert scalar == 1 + noise(1)[0]
    before = held.clone()
    add_normal_(held, 0.0, KEY, NONCE)
    assert torch.equal(held, before)
    add_normal_(held, 1, KEY, NONCE)
    torch.testing.assert_close(held, before + noise(20))


def test_values_that_require_gradients_are_added_to_without_a_graph() -> None:
    values = torch.zeros(5, requires_grad=True)
    add_normal_(values, 1.0, KEY, NONCE)
    assert values.is_leaf
    assert torch.equal(values.detach(), noise(5))


def test_pitfall_19_seeding_changes_nothing_and_drawing_changes_no_global_generator() -> None:
    drawn = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        before = torch.get_rng_state(), np.random.get_state()[1], random.getstate()
        drawn.append(noise(3000))
        assert torch.equal(torch.get_rng_state(), before[0])
        np.testing.assert_array_equal(np.random.get_state()[1], before[1])
        assert random.getstate() == before[2]
    assert torch.equal(*drawn)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": torch.zeros(3, dtype=torch.int64)}, r"values: has dtype torch.int64.*Convert it first"),
        ({"values": torch.zeros(3, dtype=torch.complex64)}, r"values: has dtype torch.complex64"),
        ({"values": torch.zeros(3, 4).T}, r"values: has strides \(1, 4\), must be contiguous"),
        ({"values": torch.zeros(1).expand(9)}, r"values: has strides \(0,\), must be contiguous"),
        ({"key": torch.zeros(8)}, r"key: is torch.float32 of shape \(8,\), must be 8 int32 words\. Use key_tensor"),
        ({"key": KEY[:4]}, r"key: is torch.int32 of shape \(4,\)"),
        ({"key": KEY.repeat(2)[::2]}, r"key: .* must be 8 int32 words"),
        ({"key": KEY.to("meta")}, r"key: is on meta, must be on cpu"),
        ({"scale": -1.0}, r"scale=-1.0: must be a finite number of at least 0"),
        ({"scale": float("nan")}, r"scale=nan"),
        ({"scale": float("inf")}, r"scale=inf"),
        ({"nonce": (1, 2, 2**32)}, r"nonce=\(1, 2, 4294967296\): must be three whole numbers of 32 bits"),
    ],
)
def test_bad_input_is_refused_and_nothing_added(change: dict[str, object], message: str) -> None:
    arguments = {"values": torch.zeros(9), "scale": 1.0, "key": KEY, "nonce": NONCE} | change
    with pytest.raises(InputError, match=message):
        add_normal_(**arguments)  # type: ignore[arg-type]
    assert not arguments["values"].any()


@pytest.mark.parametrize(("dtype", "per_block"), [(torch.float32, 10), (torch.bfloat16, 10), (torch.float64, 8)])
def test_more_blocks_than_the_counter_reaches_are_refused(dtype: torch.dtype, per_block: int) -> None:
    values = torch.empty(2**32 * per_block + 1, dtype=dtype, device="meta")
    with pytest.raises(UnsupportedError, match=r"32-bit block counter reaches\. Split it, with a nonce for each part"):
        add_normal_(values, 1.0, KEY.to("meta"), NONCE)


# Keys


def test_two_parameters_two_steps_and_two_forks_never_share_noise() -> None:
    run, other = Randomness(), Randomness()
    keys = [source.device_key("noise", step) for source in (run, run.fork(), run.fork(), other) for step in range(3)]
    drawn = [
        noise(2000, key=key_tensor(key, device="cpu"), nonce=nonce, dtype=torch.float64)
        for key in keys
        for nonce in chacha.nonces_for(["weight", "bias"]).values()
    ]
    together = torch.cat(drawn)
    assert together.unique().numel() == together.numel()


def test_one_key_and_nonce_give_the_same_noise_again() -> None:
    run = Randomness()
    again = [noise(500, key=key_tensor(run.device_key("noise", 3), device="cpu")) for _ in range(2)]
    assert torch.equal(*again)
    assert run.device_key("noise", 3) == run.device_key("noise", np.int64(3))


def test_device_keys_depend_on_the_whole_path() -> None:
    paths = [(), ("a",), ("a", "b"), ("ab",), ("a", 1), ("a", "1"), (1,), ("1",), ("noise", 1), ("noise", 11)]
    keys = [RNG.device_key(*path) for path in paths]
    assert all(len(key) == 32 for key in keys)
    assert len(set(keys)) == len(paths)
    with pytest.raises(InputError, match=r"must consist of strings and whole numbers"):
        RNG.device_key(0.5)  # type: ignore[arg-type]


def test_a_device_key_has_nothing_in_common_with_the_stream_of_its_path() -> None:
    """The personalisation keeps them apart even where message, key and length of the digest agree."""
    key = RNG.device_key("noise", 1)
    stream_key = RNG.stream("noise", 1).bit_generator.state["state"]["key"].tobytes()
    assert stream_key not in (key[:16], key[16:])
    secret = RNG._key
    encoded = b"\x00\x00\x00\x06snoise\x00\x00\x00\x02i1"
    assert hashlib.blake2b(encoded, key=secret, digest_size=16).digest() == stream_key
    assert hashlib.blake2b(encoded, key=secret, digest_size=32).digest() != key


def test_a_key_tensor_holds_the_bytes_in_little_endian_words() -> None:
    key = bytes(range(248, 256)) + bytes(24)
    tensor = key_tensor(key, device="cpu")
    assert (tensor.dtype, tuple(tensor.shape)) == (torch.int32, (8,))
    assert tensor.numpy().astype("<i4").tobytes() == key
