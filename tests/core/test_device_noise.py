"""Noise drawn where the values are: its law, the state around it, and no noise drawn twice."""

import hashlib
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.core import chacha
from tacit.core.device_noise import add_normal_, key_tensor
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


# The public function on the CPU


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("count", [1, 127, 1280, 1281, 40_960, 40_961, 163_841, 400_000])
def test_a_value_has_the_same_noise_whatever_the_size(count: int, dtype: torch.dtype) -> None:
    whole = noise(500_000, dtype=dtype)
    assert torch.equal(noise(count, dtype=dtype), whole[:count])


def test_every_value_has_noise_of_its_own() -> None:
    whole = noise(120_000, dtype=torch.float64)
    assert whole.abs().unique().numel() == whole.numel()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_noise_is_scaled_added_in_place_and_rounded_once(dtype: torch.dtype) -> None:
    values = torch.linspace(-2, 2, 3 * 50 * 7).to(dtype).view(3, 50, 7)
    address, before = values.data_ptr(), values.to(torch.float64 if dtype == torch.float64 else torch.float32)
    expected = before + 0.7 * noise(values.numel(), dtype=before.dtype).view(values.shape)
    held = before.clone()
    add_normal_(held, 0.7, KEY, NONCE)
    torch.testing.assert_close(held, expected, rtol=0, atol=4e-7 if held.dtype == torch.float32 else 1e-15)
    add_normal_(values, 0.7, KEY, NONCE)
    assert values.data_ptr() == address
    assert values.dtype == dtype
    assert torch.equal(values, held.to(dtype))


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


@pytest.fixture
def torch_settings() -> Iterator[None]:
    before = torch.get_num_threads(), torch.get_default_dtype()
    yield
    torch.set_num_threads(before[0])
    torch.set_default_dtype(before[1])
    torch.set_default_device(None)  # any device, even this one, would stay in the way of every later call


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.usefixtures("torch_settings")
def test_noise_depends_on_no_setting_of_torch(dtype: torch.dtype) -> None:
    torch.set_num_threads(1)
    base = noise(700_001, dtype=dtype)
    for threads, default, device in ((2, torch.float32, "cpu"), (3, torch.float64, "cpu"), (2, torch.float16, "meta")):
        values = torch.zeros_like(base)
        torch.set_num_threads(threads)
        torch.set_default_dtype(default)
        torch.set_default_device(device)
        add_normal_(values, 1.0, KEY, NONCE)
        torch.set_default_device("cpu")
        assert torch.equal(values, base)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_noise_is_the_same_with_and_without_gradients(mode: Callable[[], AbstractContextManager[None]]) -> None:
    base = noise(2000)
    with mode():
        born_inside = noise(2000)
    outside = torch.zeros(2000)
    with mode():
        add_normal_(outside, 1.0, KEY, NONCE)
    assert torch.equal(born_inside, base)
    assert torch.equal(outside, base)
    add_normal_(born_inside, 1.0, KEY, NONCE)  # also to a tensor born in inference mode, outside of it
    assert torch.equal(born_inside, 2 * base)


def test_autograd_sees_that_saved_values_changed() -> None:
    values = torch.ones(5)
    result = (torch.ones(5, requires_grad=True) * values).sum()
    add_normal_(values, 1.0, KEY, NONCE)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


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


@pytest.mark.parametrize("path", [(), ("noise",), ("sampling", "subset"), ("a", 7)])
def test_numbered_keys_are_those_of_their_paths(path: tuple[str | int, ...]) -> None:
    """In whatever order they are asked for: nothing of one number is left in what is hashed for all."""
    keys = RNG.device_keys(*path)
    for number in (0, 12345, 1, 2**40, 0, np.int64(1)):
        assert keys(number) == RNG.device_key(*path, number)
    with pytest.raises(InputError, match=r"must consist of strings and whole numbers"):
        keys(0.5)  # type: ignore[arg-type]


def test_a_device_key_has_nothing_in_common_with_the_stream_of_its_path() -> None:
    """The personalisation keeps them apart even where message, key and length of the digest agree."""
    key = RNG.device_key("noise", 1)
    stream_key = RNG.stream("noise", 1).bit_generator.state["state"]["keysetup"].astype("<u4").tobytes()
    encoded = b"\x00\x00\x00\x06snoise\x00\x00\x00\x02i1"

    def derived(person: bytes) -> bytes:
        return hashlib.blake2b(encoded, key=RNG._key, digest_size=32, person=person).digest()

    assert (stream_key, key) == (derived(b"tacit/stream"), derived(b"tacit/device-key"))
    assert len({stream_key, key, derived(b"")}) == 3


def test_a_key_tensor_holds_the_bytes_in_little_endian_words() -> None:
    key = bytes(range(248, 256)) + bytes(24)
    tensor = key_tensor(key, device="cpu")
    assert (tensor.dtype, tuple(tensor.shape)) == (torch.int32, (8,))
    assert tensor.numpy().astype("<i4").tobytes() == key
