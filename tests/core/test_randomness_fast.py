"""The fast mode: Philox where it was asked for and the statement says so, ChaCha20 everywhere else."""

import hashlib

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.core.device_noise import add_fast_normals_
from tacit.core.privacy import Neighbours, PrivacyUnit, Statement
from tacit.core.randomness import Randomness, _encode

ACCEPT, REJECT = 1e-3, 1e-6
SECRET = bytes(range(7, 39))
FAST = Randomness.from_secret_key(SECRET, voids_guarantee=False, fast=True)
SECURE = Randomness.from_secret_key(SECRET, voids_guarantee=False)


def kind_of(randomness: Randomness) -> str:
    return type(randomness.stream("a").bit_generator).__name__


def test_only_who_asks_for_it_gets_it() -> None:
    for usual in (Randomness(), Randomness(unsafe_seed=1), Randomness().fork(), Randomness().fork(may_be_fast=True)):
        assert (kind_of(usual), usual.generator, usual.fast) == ("ChaCha", "ChaCha20", False)
    for fast in (Randomness(fast=True), Randomness(unsafe_seed=1, fast=True)):
        assert (kind_of(fast), fast.generator, fast.fast) == ("Philox", "Philox", True)
    assert repr(Randomness(fast=True)) == "Randomness(voids_guarantee=False, fast=True)"


@pytest.mark.parametrize("seed", [None, 4])
def test_a_run_whose_statement_does_not_tell_leaves_it(seed: int | None) -> None:
    source = Randomness(unsafe_seed=seed, fast=True)
    assert (kind_of(source.fork()), kind_of(source.fork(may_be_fast=True))) == ("ChaCha", "Philox")
    assert source.fast
    assert source.fork().voids_guarantee == (seed is not None)
    if seed is not None:
        assert source.fork().stream("a").bytes(32) == Randomness(unsafe_seed=seed).stream("a").bytes(32)


def test_forks_share_no_stream() -> None:
    source = Randomness(fast=True)
    drawn = {fork.stream("a").bytes(16) for fork in (source, *(source.fork(may_be_fast=True) for _ in range(3)))}
    assert len(drawn) == 4


@pytest.mark.parametrize("path", [("noise", 1), ("sampling", 12), ()])
def test_a_fast_stream_is_philox_under_128_bits_of_its_own(path: tuple[str | int, ...]) -> None:
    digest = hashlib.blake2b(_encode(path), key=SECRET, digest_size=32, person=b"tacit/fast").digest()
    key = np.frombuffer(digest[:16], dtype=np.uint64)
    assert FAST.stream(*path).bytes(100) == np.random.Generator(np.random.Philox(key=key)).bytes(100)
    cryptographic = SECURE.stream(*path).bit_generator.state["state"]["keysetup"].tobytes()
    assert digest[:16] not in cryptographic  # nothing that Philox might give away helps against the cipher
    assert digest[:16] not in SECURE.device_key(*path)


def test_seeds_of_steps_have_64_bits_and_no_two_are_equal() -> None:
    seeds = [FAST.fast_seed("noise", step) for step in range(200)]
    assert len(set(seeds)) == 200
    bits = np.array([[seed >> bit & 1 for bit in range(64)] for seed in seeds]).sum(axis=0)
    assert ((bits > 0) & (bits < 200)).all()
    assert max(seeds) < 2**64


def noise(*, dtype: torch.dtype = torch.float32, seed: int = 3, scale: float = 1.0, size: int = 40_000) -> torch.Tensor:
    values = torch.zeros(size, dtype=dtype)
    add_fast_normals_([values], [scale], seed)
    return values


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_fast_noise_is_normal_with_its_scale(dtype: torch.dtype) -> None:
    sample = noise(dtype=dtype, scale=2.0).double().numpy()
    assert stats.kstest(sample, stats.norm(scale=2.0).cdf).pvalue > ACCEPT
    for near_miss in (1.8, 2.2):
        assert stats.kstest(sample, stats.norm(scale=near_miss).cdf).pvalue < REJECT


def test_each_tensor_and_each_seed_has_noise_of_its_own() -> None:
    values = [torch.zeros(5000) for _ in range(4)]
    add_fast_normals_(values, [1.0] * 4, seed=9)
    rows = torch.stack([*values, noise(seed=10, size=5000)])
    scores = np.corrcoef(rows.numpy())[np.triu_indices(5, k=1)] * np.sqrt(5000)
    assert stats.chi2.sf(np.sum(scores**2), df=len(scores)) > ACCEPT
    rows[0] += 0.3 * rows[1]  # near miss
    scores = np.corrcoef(rows.numpy())[np.triu_indices(5, k=1)] * np.sqrt(5000)
    assert stats.chi2.sf(np.sum(scores**2), df=len(scores)) < REJECT


def test_fast_noise_is_a_function_of_its_seed_and_of_no_global_generator() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = noise()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(noise(), first)
    assert not torch.equal(noise(seed=4), first)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_sums_are_added_to_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    start = torch.linspace(-300, 300, 1000).to(dtype)
    values = start.clone()
    add_fast_normals_([values], [0.7], seed=5)
    exact = start.float() + noise(seed=5, scale=0.7, size=1000)
    assert torch.equal(values, exact.to(dtype))
    assert not torch.equal(values, start + noise(seed=5, scale=0.7, size=1000).to(dtype))


def test_values_of_every_kind_are_changed_in_place() -> None:
    with torch.inference_mode():
        held = torch.zeros(4)
    leaf = torch.zeros(3, 2, requires_grad=True)
    columns = torch.zeros(2, 3).t()
    add_fast_normals_([held, leaf, columns, torch.zeros(0)], [1.0] * 4, seed=1)
    assert all(bool((tensor != 0).all()) for tensor in (held, leaf, columns))
    assert leaf.is_leaf


def test_a_statement_names_a_generator_that_is_not_cryptographic() -> None:
    def statement(generator: str) -> Statement:
        return Statement(
            *(1.0, 1e-5, Neighbours.ADD_REMOVE, PrivacyUnit(), "a release", "no sampling", "pld"),
            caveats=("another caveat",),
            generator=generator,
        )

    fast, usual = statement(FAST.generator), statement(SECURE.generator)
    clause = "; its random numbers came at least in part from Philox, which is not cryptographic; another caveat."
    assert str(fast).endswith(clause)
    assert "cryptographic" not in str(usual)
    assert (fast.to_dict()["generator"], usual.to_dict()["generator"]) == ("Philox", "ChaCha20")
    assert str(fast).replace(clause, "") == str(usual).replace("; another caveat.", "")
