"""Samplers draw exactly the distribution that they are accounted for."""

import random
import time
import tracemalloc
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.core import InputError
from tacit.core.randomness import Randomness
from tacit.sampling import SAMPLERS, FixedSize, Poisson, Sampler, Shuffled, TruncatedPoisson, named_sampler

RNG = Randomness(unsafe_seed=7)
ACCEPT = 1e-3  # the seeds are fixed, so that a test that passes once passes always


@st.composite
def samplers(draw: st.DrawFn) -> tuple[Sampler, int]:
    """A sampler together with a number of examples that it accepts."""
    examples = draw(st.integers(1, 300))
    batch = draw(st.integers(1, examples))
    rate = draw(st.floats(1e-6, 1))
    return draw(
        st.sampled_from(
            [
                Poisson(rate),
                TruncatedPoisson(rate, examples, batch),
                FixedSize(examples, batch),
                Shuffled(examples, batch),
            ]
        )
    ), examples


@given(samplers(), st.integers(0, 10**9), st.integers(0, 2**32))
def test_indices_are_unique_sorted_in_range_and_stateless(
    sampler_and_size: tuple[Sampler, int], step: int, seed: int
) -> None:
    sampler, examples = sampler_and_size
    drawn = sampler.indices(step, examples, Randomness(unsafe_seed=seed))
    assert drawn.dtype == np.int64
    assert drawn.ndim == 1
    assert len(drawn) <= sampler.largest_batch_size(examples)
    assert (np.diff(drawn) > 0).all()
    assert ((drawn >= 0) & (drawn < examples)).all()
    sampler.indices(step + 1, examples, Randomness(unsafe_seed=seed))
    again = sampler.indices(step, examples, Randomness(unsafe_seed=seed))
    np.testing.assert_array_equal(drawn, again)


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_other_steps_and_other_keys_draw_other_records(name: str) -> None:
    sampler = named_sampler(name, examples=10_000, batch_size=100)
    first = sampler.indices(0, 10_000, RNG)
    for other in (sampler.indices(1, 10_000, RNG), sampler.indices(0, 10_000, Randomness())):
        assert not np.array_equal(first, other)


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_mean_batch_size_is_the_expected_one(name: str) -> None:
    sampler = named_sampler(name, examples=1000, batch_size=20)
    sizes = [len(sampler.indices(step, 1000, RNG)) for step in range(500)]
    assert np.mean(sizes) == pytest.approx(sampler.expected_batch_size(1000), abs=4 * np.sqrt(20 / 500))
    assert max(sizes) <= sampler.largest_batch_size(1000)


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_pitfall_18_global_seeds_neither_set_nor_are_set_by_the_sampler(name: str) -> None:
    sampler = named_sampler(name, examples=10_000, batch_size=500)

    def seeded_draw(randomness: Randomness) -> np.ndarray:
        torch.manual_seed(0)
        np.random.seed(0)
        random.seed(0)
        before = torch.get_rng_state(), np.random.get_state()[1], random.getstate()
        drawn = sampler.indices(0, 10_000, randomness)
        assert torch.equal(torch.get_rng_state(), before[0])
        np.testing.assert_array_equal(np.random.get_state()[1], before[1])
        assert random.getstate() == before[2]
        return drawn

    one, two = (np.bincount(seeded_draw(Randomness()), minlength=10_000) for _ in range(2))
    # Two machines that share all global seeds overlap as two independent samples do, not entirely.
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.06


# Poisson


def subset_counts(sampler: Sampler, examples: int, draws: int) -> np.ndarray:
    """How often each subset of a small data set was drawn, by the number whose bits are the subset."""
    codes = [int(np.sum(1 << sampler.indices(step, examples, RNG))) for step in range(draws)]
    return np.bincount(codes, minlength=2**examples)


def bernoulli_masses(examples: int, rate: float) -> np.ndarray:
    sizes = np.array([code.bit_count() for code in range(2**examples)])
    return rate**sizes * (1 - rate) ** (examples - sizes)


def chi_square(counts: np.ndarray, masses: np.ndarray) -> float:
    possible = masses > 0
    assert counts[~possible].sum() == 0
    return float(stats.chisquare(counts[possible], counts.sum() * masses[possible]).pvalue)


def test_poisson_draws_every_subset_as_independent_coins_do() -> None:
    counts = subset_counts(Poisson(0.3), examples=5, draws=15_000)
    assert chi_square(counts, bernoulli_masses(5, 0.3)) > ACCEPT
    for near_miss in (0.27, 0.33):
        assert chi_square(counts, bernoulli_masses(5, near_miss)) < 1e-6


def membership(sampler: Sampler, examples: int, draws: int) -> np.ndarray:
    rows = np.zeros((draws, examples))
    for step in range(draws):
        rows[step, sampler.indices(step, examples, RNG)] = 1
    return rows


def pairwise_pvalue(rows: np.ndarray, rate: float) -> float:
    """Under independent coins the scaled covariances of all pairs are standard normal and uncorrelated."""
    draws, examples = rows.shape
    centred = rows - rate
    covariances = (centred.T @ centred)[np.triu_indices(examples, k=1)] / draws
    scores = np.sqrt(draws) * covariances / (rate * (1 - rate))
    return float(stats.chi2.sf(np.sum(scores**2), df=len(scores)))


def test_poisson_inclusions_have_the_right_frequency_and_no_covariance() -> None:
    rows = membership(Poisson(0.1), examples=50, draws=5000)
    scores = (rows.sum(axis=0) - 500) / np.sqrt(5000 * 0.1 * 0.9)
    assert stats.chi2.sf(np.sum(scores**2), df=50) > ACCEPT
    assert pairwise_pvalue(rows, 0.1) > ACCEPT
    fixed = membership(FixedSize(50, 5), examples=50, draws=5000)
    assert pairwise_pvalue(fixed, 0.1) < 1e-6  # the same frequencies, but not independent


@pytest.mark.parametrize(("examples", "rate"), [(1000, 0.01), (2000, 0.25)])
def test_poisson_batch_sizes_are_binomial(examples: int, rate: float) -> None:
    sizes = np.array([len(Poisson(rate).indices(step, examples, RNG)) for step in range(6000)])

    def pvalue(rate: float) -> float:
        edges = np.unique(stats.binom.ppf(np.linspace(0.05, 0.95, 19), examples, rate))
        cells = np.bincount(np.searchsorted(edges, sizes), minlength=len(edges) + 1)
        masses = np.diff(stats.binom.cdf(np.concatenate([[-1], edges, [examples]]), examples, rate))
        return float(stats.chisquare(cells, len(sizes) * masses).pvalue)

    assert pvalue(rate) > ACCEPT
    assert pvalue(rate * 1.1) < 1e-6
    assert pvalue(rate * 0.9) < 1e-6


@pytest.mark.parametrize("rate", [0.001, 0.1])
def test_poisson_is_uniform_over_a_large_data_set(rate: float) -> None:
    """Both ways in which the subset may be drawn: sorted where it is sparse, and marked in the whole."""
    drawn = np.concatenate([Poisson(rate).indices(step, 20_000, RNG) for step in range(int(20 / rate) // 10)])
    assert stats.chisquare(np.bincount(drawn // 1000, minlength=20)).pvalue > ACCEPT
    assert stats.chisquare(np.bincount(drawn % 20, minlength=20)).pvalue > ACCEPT


def test_poisson_takes_time_and_memory_of_the_batch_not_of_the_data_set() -> None:
    tracemalloc.start()
    start = time.process_time()
    drawn = Poisson(1e-5).indices(0, 10**8, RNG)
    seconds = time.process_time() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 800 < len(drawn) < 1200
    assert peak < 2**20
    assert seconds < 0.5


@pytest.mark.parametrize("rate", [1.0, 1])
def test_poisson_at_rate_one_takes_everything(rate: float) -> None:
    np.testing.assert_array_equal(Poisson(rate).indices(3, 17, RNG), np.arange(17))


def test_pitfall_03_every_step_yields_a_batch_be_it_empty() -> None:
    sampler = Poisson(1e-3)
    lots = [sampler.indices(step, 100, RNG) for step in range(300)]
    empty = [lot for lot in lots if len(lot) == 0]
    assert len(lots) == 300
    assert len(empty) == pytest.approx(300 * 0.999**100, abs=20)


def test_pitfall_04_an_empty_batch_holds_no_stand_in_record() -> None:
    for sampler, examples in [(Poisson(0.5), 0), (Poisson(1e-12), 10), (TruncatedPoisson(1e-12, 10, 5), 10)]:
        drawn = sampler.indices(0, examples, RNG)
        assert drawn.shape == (0,)
        assert drawn.dtype == np.int64


# The others


def test_truncated_poisson_keeps_a_uniform_part_of_a_poisson_sample() -> None:
    examples, rate, limit = 5, 0.5, 2
    counts = subset_counts(TruncatedPoisson(rate, examples, limit), examples, draws=10_000)

    def masses(rate: float) -> np.ndarray:
        sizes = np.array([code.bit_count() for code in range(2**examples)])
        full = stats.binom.sf(limit - 1, examples, rate) / 10  # C(5, 2) sets of the largest size
        return np.where(sizes == limit, full, np.where(sizes < limit, bernoulli_masses(examples, rate), 0.0))

    assert masses(rate).sum() == pytest.approx(1)
    assert chi_square(counts, masses(rate)) > ACCEPT
    for near_miss in (0.45, 0.55):
        assert chi_square(counts, masses(near_miss)) < 1e-6


@given(st.integers(1, 60), st.floats(0.01, 1), st.integers(1, 80))
def test_truncated_poisson_expected_size_is_the_mean_of_the_truncated_binomial(
    examples: int, rate: float, limit: int
) -> None:
    sizes = np.arange(examples + 1)
    mean = np.sum(np.minimum(sizes, limit) * stats.binom.pmf(sizes, examples, rate))
    expected = TruncatedPoisson(rate, examples, limit).expected_batch_size(examples)
    assert expected == pytest.approx(mean, rel=1e-9)


def test_fixed_size_draws_every_subset_equally_often() -> None:
    counts = subset_counts(FixedSize(6, 3), examples=6, draws=6000)
    sets = [sum(1 << i for i in members) for members in combinations(range(6), 3)]
    assert counts.sum() == counts[sets].sum()
    assert stats.chisquare(counts[sets]).pvalue > ACCEPT


@given(st.integers(1, 80), st.data())
@settings(max_examples=50)
def test_shuffled_epochs_hold_each_record_in_one_batch_at_most(examples: int, data: st.DataObject) -> None:
    batch = data.draw(st.integers(1, examples))
    sampler = Shuffled(examples, batch)
    for epoch in range(2):
        first = epoch * sampler.steps_per_epoch
        steps = range(first, first + sampler.steps_per_epoch)
        lots = [sampler.indices(step, examples, RNG) for step in steps]
        seen = np.concatenate(lots)
        assert all(len(lot) == batch for lot in lots)
        assert len(np.unique(seen)) == len(seen) == sampler.steps_per_epoch * batch > examples - batch


def test_shuffled_epochs_are_independent_uniform_permutations() -> None:
    sampler = Shuffled(6, 2)
    places = [
        next(place for place in range(3) if 0 in sampler.indices(3 * epoch + place, 6, RNG)) for epoch in range(3000)
    ]
    assert stats.chisquare(np.bincount(places, minlength=3)).pvalue > ACCEPT
    pairs = np.bincount(np.array(places[::2]) * 3 + np.array(places[1::2]), minlength=9)
    assert stats.chisquare(pairs).pvalue > ACCEPT


# Refusals


@pytest.mark.parametrize("sampler", [TruncatedPoisson(0.1, 100, 20), FixedSize(100, 10), Shuffled(100, 10)])
@pytest.mark.parametrize("examples", [0, 99, 101])
def test_a_public_size_must_be_the_real_one(sampler: Sampler, examples: int) -> None:
    for use in (
        lambda: sampler.indices(0, examples, RNG),
        lambda: sampler.expected_batch_size(examples),
        lambda: sampler.largest_batch_size(examples),
    ):
        with pytest.raises(InputError, match=f"examples={examples}: must be the declared 100"):
            use()


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.01, float("nan"), "0.1"])
def test_rates_that_are_no_probabilities_are_refused(rate: float) -> None:
    with pytest.raises(InputError, match="sampling_rate="):
        Poisson(rate)
    with pytest.raises(InputError, match="sampling_rate="):
        TruncatedPoisson(rate, 100, 10)


@pytest.mark.parametrize("make", [FixedSize, Shuffled])
def test_batches_that_do_not_fit_are_refused(make: type[FixedSize] | type[Shuffled]) -> None:
    with pytest.raises(InputError, match="batch_size=11: must be at most the 10 examples"):
        make(10, 11)
    for examples, batch in [(0, 1), (10, 0), (10, 2.5), (-1, -1)]:
        with pytest.raises(InputError, match=r"examples=|batch_size="):
            make(examples, batch)


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_steps_and_sizes_below_zero_are_refused(name: str) -> None:
    sampler = named_sampler(name, examples=100, batch_size=10)
    with pytest.raises(InputError, match="step=-1"):
        sampler.indices(-1, 100, RNG)
    with pytest.raises(InputError, match="examples=-1"):
        sampler.indices(0, -1, RNG)


def test_names_that_are_no_samplers_are_refused() -> None:
    with pytest.raises(InputError, match="sampler='weighted': must be one of fixed-size, poisson"):
        named_sampler("weighted", examples=10, batch_size=1)
    with pytest.raises(InputError, match="batch_size=11"):
        named_sampler("poisson", examples=10, batch_size=11)
    assert all(named_sampler(name, examples=10, batch_size=2).name == name for name in SAMPLERS)


def frequency_pvalue(counts: np.ndarray, draws: int, size: int) -> float:
    """Under uniform subsets of a fixed size the counts of all records are exchangeable and have a known sum."""
    examples, rate = len(counts), size / len(counts)
    scores = (counts - draws * rate) / np.sqrt(draws * rate * (1 - rate) * examples / (examples - 1))
    return float(stats.chi2.sf(np.sum(scores**2), df=examples - 1))


@pytest.mark.parametrize("size", [110, 200, 390])
def test_dense_subsets_favour_no_record_and_no_pair(size: int) -> None:
    draws, examples = 3000, 400
    rows = membership(FixedSize(examples, size), examples, draws)
    assert (rows.sum(axis=1) == size).all()
    assert frequency_pvalue(rows.sum(axis=0), draws, size) > ACCEPT
    halves = rows[:, : examples // 2].sum(axis=1)  # as many as a draw without replacement leaves there
    law = stats.hypergeom(examples, examples // 2, size)
    assert abs(halves.mean() - law.mean()) < 4 * law.std() / np.sqrt(draws)
    assert abs(halves.var() / law.var() - 1) < 6 * np.sqrt(2 / draws)


def test_dense_subsets_that_drop_the_last_records_are_found_out() -> None:
    draws, examples, size = 3000, 400, 200
    rows = np.zeros((draws, examples))
    for step in range(draws):
        marked = np.flatnonzero(RNG.stream("near miss", step).random(examples) < 0.6)
        rows[step, marked[:size]] = 1
    assert frequency_pvalue(rows.sum(axis=0), draws, size) < 1e-6
