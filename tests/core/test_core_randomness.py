"""Noise and sampling come from the operating system's entropy alone, in streams that never meet."""

import copy
import pickle
import random
import secrets
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tacit.core.errors import InputError, UnsupportedError
from tacit.core.randomness import Randomness, _encode, standard_normal

RNG = Randomness(unsafe_seed=3)
CPU = torch.device("cpu")
ACCEPT = 1e-3
paths = st.lists(st.one_of(st.text(max_size=6), st.integers()), max_size=5)


def draw(randomness: Randomness, *path: str | int) -> np.ndarray:
    return randomness.stream(*path).random(8)


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def test_pitfall_19_seeding_global_generators_changes_no_stream() -> None:
    drawn = []
    for seed in (0, 0, 1):
        seed_everything(seed)
        drawn.append((draw(RNG, "noise", 1), draw(Randomness(), "noise", 1)))
    assert all(np.array_equal(fixed, drawn[0][0]) for fixed, _ in drawn)
    assert not np.array_equal(drawn[0][1], drawn[1][1])


def test_pitfall_19_drawing_changes_no_global_generator() -> None:
    seed_everything(5)
    before = torch.get_rng_state(), np.random.get_state()[1], random.getstate()
    standard_normal((100,), Randomness().stream("noise"), dtype=torch.float32, device=CPU)
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])
    assert random.getstate() == before[2]


def test_pitfall_20_keys_hold_at_least_128_bits_of_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def spy(size: int) -> bytes:
        asked.append(size)
        return bytes(range(size))

    monkeypatch.setattr(secrets, "token_bytes", spy)
    seed_everything(0)
    one, two = Randomness(), Randomness()
    assert len(asked) == 2
    assert min(asked) >= 16
    # The stream is a function of those bytes: equal bytes give equal streams, and every byte counts.
    assert np.array_equal(draw(one, "a"), draw(two, "a"))
    for position in (0, 15, 31):
        changed = bytearray(range(32))
        changed[position] ^= 1
        monkeypatch.setattr(secrets, "token_bytes", lambda size, changed=changed: bytes(changed[:size]))
        assert not np.array_equal(draw(Randomness(), "a"), draw(one, "a"))


def test_a_stream_is_keyed_with_256_bits() -> None:
    keys = [RNG.stream("noise", step).bit_generator.state["state"]["keysetup"] for step in range(64)]
    assert all(key.dtype == np.uint32 and key.shape == (8,) for key in keys)
    ones = np.unpackbits(np.stack(keys).view(np.uint8), axis=1).sum(axis=0)
    assert len(ones) == 256
    assert ((ones > 0) & (ones < 64)).all()  # no bit of the key is stuck


def test_a_fixed_seed_is_repeatable_and_voids_the_guarantee() -> None:
    assert np.array_equal(draw(Randomness(unsafe_seed=1), "a"), draw(Randomness(unsafe_seed=1), "a"))
    assert not np.array_equal(draw(Randomness(unsafe_seed=1), "a"), draw(Randomness(unsafe_seed=2), "a"))
    assert Randomness(unsafe_seed=0).voids_guarantee
    assert not Randomness().voids_guarantee


def test_the_key_is_not_shown() -> None:
    assert repr(Randomness()) == "Randomness(voids_guarantee=False)"


@given(paths, paths)
def test_paths_are_encoded_injectively(one: list[str | int], two: list[str | int]) -> None:
    assert (_encode(one) == _encode(two)) == (one == two)


@pytest.mark.parametrize(
    ("one", "two"),
    [(("a", "b"), ("ab",)), ((1,), ("1",)), (("a", ""), ("a",)), ((), ("",)), ((12, 3), (1, 23)), (("i1",), (1,))],
)
def test_paths_that_read_alike_have_streams_apart(one: tuple[str | int, ...], two: tuple[str | int, ...]) -> None:
    assert not np.array_equal(draw(RNG, *one), draw(RNG, *two))


@pytest.mark.parametrize("number", [np.int64(5), np.uint8(5), np.int32(5)])
def test_whole_numbers_of_every_type_name_one_stream(number: int) -> None:
    assert np.array_equal(draw(RNG, "noise", number), draw(RNG, "noise", 5))
    assert not np.array_equal(draw(RNG, "noise", number), draw(RNG, "noise", "5"))


@pytest.mark.parametrize("part", [5.0, None, b"5", ("a",), np.float64(5)])
def test_a_path_of_anything_else_is_refused(part: object) -> None:
    with pytest.raises(InputError, match=r"^path=.*must consist of strings and whole numbers"):
        RNG.stream("noise", part)  # type: ignore[arg-type]


def test_forks_of_one_source_share_no_stream() -> None:
    source = Randomness()
    drawn = [
        draw(randomness, "noise", 0) for randomness in (source, source.fork(), source.fork(), source.fork().fork())
    ]
    assert len({tuple(values) for values in drawn}) == 4


@pytest.mark.parametrize("copy_it", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copies_that_would_repeat_the_noise_are_refused(copy_it: Callable[[Randomness], object]) -> None:
    with pytest.raises(UnsupportedError, match=r"^randomness: cannot be copied or pickled"):
        copy_it(Randomness())
    for source in (Randomness(unsafe_seed=3), Randomness(unsafe_seed=3, fast=True)):
        source.noise_key(0)  # which keeps something for the next ones
        copied = copy_it(source)
        again = pickle.loads(copied) if isinstance(copied, bytes) else copied
        assert isinstance(again, Randomness)
        assert again.voids_guarantee
        assert (again.fast, again.noise_key(1)) == (source.fast, source.noise_key(1))
        assert again.noise_key(1) == source.device_key("fast noise" if source.fast else "noise", 1)
        assert np.array_equal(draw(again, "noise", 0), draw(source, "noise", 0))


def test_a_fork_of_a_fixed_seed_repeats_it() -> None:
    assert np.array_equal(draw(RNG.fork(), "noise", 0), draw(RNG, "noise", 0))
    assert RNG.fork().voids_guarantee
    assert not Randomness().fork().voids_guarantee


@given(paths)
def test_a_path_gives_its_stream_again_whatever_was_drawn_before(path: list[str | int]) -> None:
    first = draw(RNG, *path)
    RNG.stream("elsewhere").random(1000)
    assert np.array_equal(draw(RNG, *path), first)


def test_streams_of_neighbouring_paths_are_uncorrelated() -> None:
    noise = np.stack(
        [RNG.stream("noise", step, name).standard_normal(2000) for step in range(10) for name in ("w", "b")]
    )
    correlations = np.corrcoef(noise)[np.triu_indices(20, k=1)]
    scores = correlations * np.sqrt(2000)
    assert stats.chi2.sf(np.sum(scores**2), df=len(scores)) > ACCEPT
    # Near miss: a shared part of a tenth of the variance would be seen.
    shared = np.sqrt(0.9) * noise + np.sqrt(0.1) * noise[0]
    scores = np.corrcoef(shared[1:])[np.triu_indices(19, k=1)] * np.sqrt(2000)
    assert stats.chi2.sf(np.sum(scores**2), df=len(scores)) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_standard_normal_has_scale_one(dtype: torch.dtype) -> None:
    noise = standard_normal((200, 200), RNG.stream("normal", str(dtype)), dtype=dtype, device=CPU)
    assert noise.dtype == dtype
    assert noise.shape == (200, 200)
    sample = noise.double().flatten().numpy()
    assert stats.kstest(sample, stats.norm.cdf).pvalue > ACCEPT
    for near_miss in (0.9, 1.1):
        assert stats.kstest(sample, stats.norm(scale=near_miss).cdf).pvalue < 1e-6


def test_low_precision_normals_are_rounded_float32_normals() -> None:
    full = standard_normal((50,), RNG.stream("round"), dtype=torch.float32, device=CPU)
    for dtype in (torch.bfloat16, torch.float16):
        assert torch.equal(standard_normal((50,), RNG.stream("round"), dtype=dtype, device=CPU), full.to(dtype))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3)])
def test_standard_normal_has_any_shape(shape: tuple[int, ...]) -> None:
    assert standard_normal(shape, RNG.stream("shape"), dtype=torch.float32, device=CPU).shape == shape
