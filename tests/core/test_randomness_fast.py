"""The fast mode: Philox for the noise of steps where it was asked for, as the statement says; ChaCha20 for all else."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.core.chacha import nonce_for
from tacit.core.device_noise import add_normal_, key_tensor
from tacit.core.privacy import Neighbours, PrivacyUnit, Statement
from tacit.core.randomness import Randomness

ACCEPT, REJECT = 1e-3, 1e-6
SECRET = bytes(range(7, 39))
FAST = Randomness.from_secret_key(SECRET, voids_guarantee=False, fast=True)
SECURE = Randomness.from_secret_key(SECRET, voids_guarantee=False)


def test_only_who_asks_for_it_gets_it() -> None:
    for usual in (Randomness(), Randomness(unsafe_seed=1), Randomness().fork(), Randomness().fork(may_be_fast=True)):
        assert (usual.generator, usual.fast) == ("ChaCha20", False)
    for fast in (Randomness(fast=True), Randomness(unsafe_seed=1, fast=True)):
        assert (fast.generator, fast.fast) == ("Philox", True)
    assert repr(Randomness(fast=True)) == "Randomness(voids_guarantee=False, fast=True)"


@pytest.mark.parametrize("seed", [None, 4])
def test_a_run_whose_statement_does_not_tell_leaves_it(seed: int | None) -> None:
    source = Randomness(unsafe_seed=seed, fast=True)
    assert (source.fork().fast, source.fork(may_be_fast=True).fast, source.fast) == (False, True, True)
    assert source.fork().voids_guarantee == (seed is not None)
    if seed is not None:
        assert source.fork().noise_key(1) == Randomness(unsafe_seed=seed).noise_key(1)


def test_forks_share_no_key() -> None:
    source = Randomness(fast=True)
    drawn = {fork.noise_key(0) for fork in (source, *(source.fork(may_be_fast=True) for _ in range(3)))}
    assert len(drawn) == 4


@pytest.mark.parametrize("path", [("noise", 1), ("sampling", 12), ()])
def test_streams_and_other_keys_are_the_same_in_both_modes(path: tuple[str | int, ...]) -> None:
    assert FAST.stream(*path).bytes(100) == SECURE.stream(*path).bytes(100)
    assert FAST.device_key(*path) == SECURE.device_key(*path)


def test_the_two_generators_never_share_a_key() -> None:
    """Nothing that Philox might give away helps against the cipher; nor does one of a block's four keys come twice."""
    keys = [source.noise_key(step) for source in (FAST, SECURE) for step in range(200)]
    assert len({key[at : at + 8] for key in keys for at in range(0, 32, 8)}) == 4 * len(keys)
    assert SECURE.noise_key(3) == SECURE.device_key("noise", 3)


def noise(
    *, dtype: torch.dtype = torch.float32, step: int = 3, name: str = "a", scale: float = 1.0, size: int = 40_000
) -> torch.Tensor:
    values = torch.zeros(size, dtype=dtype)
    add_normal_(values, scale, key_tensor(FAST.noise_key(step), device="cpu"), nonce_for(name), fast=True)
    return values


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_fast_noise_is_normal_with_its_scale(dtype: torch.dtype) -> None:
    sample = noise(dtype=dtype, scale=2.0).double().numpy()
    assert stats.kstest(sample, stats.norm(scale=2.0).cdf).pvalue > ACCEPT
    for near_miss in (1.0, 1.8, 2.2):
        assert stats.kstest(sample, stats.norm(scale=near_miss).cdf).pvalue < REJECT


def independence(rows: Sequence[torch.Tensor]) -> float:
    """The chance of correlations as large as these, where no two rows share anything."""
    scores = np.corrcoef(torch.stack(list(rows)).numpy())[np.triu_indices(len(rows), k=1)] * np.sqrt(rows[0].numel())
    return float(stats.chi2.sf(np.sum(scores**2), df=len(scores)))


def test_steps_parameters_and_places_have_noise_of_their_own() -> None:
    rows = [noise(step=step, name=name, size=5000) for step in range(4) for name in ("a", "b", "c")]
    rows += noise(step=9, size=80_000).view(-1, 5000)
    assert independence(rows) > ACCEPT
    assert independence([*rows, rows[0] + 3 * rows[1]]) < REJECT  # near miss


def test_no_word_of_a_block_is_used_twice() -> None:
    """The ten normals of a block, of which each quarter has a key of its own, and those of neighbouring blocks."""
    by_block = noise(size=1280 * 40).view(40, 10, 128)
    assert independence(list(by_block.transpose(0, 1).reshape(10, -1))) > ACCEPT
    assert independence(list(by_block.permute(2, 0, 1).reshape(128, -1))) > ACCEPT


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_number_of_threads_changes_nothing(dtype: torch.dtype) -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = noise(dtype=dtype, size=500_000)
        torch.set_num_threads(3)
        assert torch.equal(noise(dtype=dtype, size=500_000), alone)
    finally:
        torch.set_num_threads(threads)


def test_fast_noise_is_not_the_cipher_s() -> None:
    ciphered = torch.zeros(40_000)
    add_normal_(ciphered, 1.0, key_tensor(FAST.noise_key(3), device="cpu"), nonce_for("a"))
    assert not bool((ciphered == noise()).any())


def test_a_statement_names_a_generator_that_is_not_cryptographic() -> None:
    def statement(generator: str) -> Statement:
        return Statement(
            *(1.0, 1e-5, Neighbours.ADD_REMOVE, PrivacyUnit(), "a release", "no sampling", "pld"),
            caveats=("another caveat",),
            generator=generator,
        )

    fast, usual = statement(FAST.generator), statement(SECURE.generator)
    clause = "; the noise of its steps came from Philox, which is not cryptographic; another caveat."
    assert str(fast).endswith(clause)
    assert "cryptographic" not in str(usual)
    assert (fast.to_dict()["generator"], usual.to_dict()["generator"]) == ("Philox", "ChaCha20")
    assert str(fast).replace(clause, "") == str(usual).replace("; another caveat.", "")
