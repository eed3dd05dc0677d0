"""Differential privacy, by counting outcomes: for every kind of query, on tables that differ by one row.

What is found out with confidence never exceeds epsilon (and delta), and with half the noise it does.
"""

import dataclasses
import math

import numpy as np
import pytest
from query_tables import SCHEMA, table
from scipy import stats

from tacit.accounting import gaussian_epsilon, gaussian_noise
from tacit.core.privacy import Neighbours, PrivacyUnit
from tacit.core.randomness import Randomness
from tacit.datasets.tables import as_schema
from tacit.queries import Count, Histogram, Mean, Quantile, Sum, Terms, Top, Variance, Where
from tacit.queries.query import NoisySums, Setting, Tally

EPSILON, DELTA = 1.0, 0.05
DRAWS = 2_000
ALPHA = 1e-4  # of each bound; a wrong alarm in one of the tests is rarer than one in a hundred runs
REPLACE = Neighbours.REPLACE_ONE
FLAGGED = Where("flag", "1")

# One row more against one row less, or one row replaced: each pair as far apart as it can be.
ADDED = {
    "count": (Count("x"), ([0, 0, 3], None, None), ([0, 0], None, None)),
    "histogram": (Histogram("city"), ([0, 0], "ab", None), ([0], "a", None)),
    "sum": (Sum("x"), ([0, 3], None, None), ([0], None, None)),
    "mean": (Mean("x"), ([0, 3], None, None), ([0], None, None)),
    "variance": (Variance("x"), ([0, -1], None, None), ([0], None, None)),
    "quantile": (Quantile("x", 0.5), ([-0.5, -1], None, None), ([-0.5], None, None)),
    "top": (Top("city"), ([0] * 4, "aabb", None), ([0] * 3, "aab", None)),
}
REPLACED = {
    "count": (Count("x", where=FLAGGED), ([0, 0], None, [0, 1]), ([0, 0], None, [0, 0])),
    "histogram": (Histogram("city"), ([0, 0], "ab", None), ([0, 0], "ac", None)),
    "sum": (Sum("x"), ([0, 3], None, None), ([0, -1], None, None)),
    "sum of some": (Sum("x", where=FLAGGED), ([3, 3], None, [0, 1]), ([3, -1], None, [0, 1])),
    "mean": (Mean("x"), ([0, 3], None, None), ([0, -1], None, None)),
    "mean of some": (Mean("x", where=FLAGGED), ([0, 3], None, [1, 1]), ([0, -1], None, [1, 1])),
    "variance": (Variance("x"), ([0, 3], None, None), ([0, 1 / 3], None, None)),
    "quantile": (Quantile("x", 0.5), ([-0.5, -1], None, None), ([-0.5, 3], None, None)),
    "top": (Top("city"), ([0] * 4, "aaab", None), ([0] * 4, "aabb", None)),
}
PAIRS = {f"{name}, added": (*pair, Neighbours.ADD_REMOVE) for name, pair in ADDED.items()}
PAIRS |= {f"{name}, replaced": (*pair, REPLACE) for name, pair in REPLACED.items()}


def spy(query):
    """The same query, which answers with the noisy integers themselves: what is made of them costs nothing."""
    if not isinstance(query, NoisySums):
        return query
    kind = type("Spy", (type(query),), {"interpret": lambda self, noisy: noisy})
    return kind(**{field.name: getattr(query, field.name) for field in dataclasses.fields(query)})


def noisy_sums(query, rows, setting: Setting, seed: int) -> np.ndarray:
    """Many releases at once, since the noise on each integer is drawn by itself: one row a release."""
    stream = Randomness(unsafe_seed=seed).stream("outcomes")
    sums = query.tally(table(*rows)).sums
    followed = 1 if query.first_may_follow and query.size_is_public(setting.terms) else 0
    many = Tally([*sums[:followed], *(DRAWS * sums[followed:])], len(rows[0]))
    return np.array(query.read(many, setting, stream).sums, dtype=float).reshape(DRAWS, -1)


def released(query, rows, setting: Setting) -> list[int]:
    """What noise is added to: all sums, or all but the first, which a public number of rows gives away."""
    return query.released(query.tally(table(*rows)), setting)


def choices(query, rows, setting: Setting, seed: int) -> np.ndarray:
    """What was chosen; of a quantile, whether it lies below -0.5, where an eighth of all candidates does."""
    stream, tally = Randomness(unsafe_seed=seed).stream("outcomes"), query.tally(table(*rows))
    if query.kind == "top":
        return np.array(["abc".index(query.read(tally, setting, stream).value[0]) for _ in range(DRAWS)])
    losses, mechanism = query.losses(np.array(tally.sums)), query.cost(setting).mechanism
    places = np.array([mechanism.choose(losses, stream) for _ in range(2 * DRAWS)])
    return (places < len(losses) // 8).astype(int)


def scores(query, here, there, setting: Setting, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """One number for each outcome on either table, larger where it speaks for the first one."""
    if not isinstance(query, NoisySums):
        drawn = [choices(query, rows, setting, seed + place) for place, rows in enumerate((here, there))]
        half = len(drawn[0]) // 2
        counts = [np.bincount(values[:half], minlength=8) + 1 for values in drawn]
        speaks = counts[0] / counts[1]
        return speaks[drawn[0]], speaks[drawn[1]]
    first, second = (np.array(released(query, rows, setting), dtype=float) for rows in (here, there))
    moved = first - second
    middle = (first + second) / 2
    drawn = [noisy_sums(query, rows, setting, seed + place) - middle for place, rows in enumerate((here, there))]
    if setting.terms.delta:
        return tuple(sums @ moved for sums in drawn)
    return tuple((sums * np.sign(moved))[:, moved != 0].min(axis=1) for sums in drawn)


def excess(here: np.ndarray, there: np.ndarray, epsilon: float) -> float:
    """A lower bound on P[here] - e^epsilon P[there] for the best event, chosen on other draws than it is counted on."""
    half = len(here) // 2
    best = max(
        np.unique(np.concatenate([here[:half], there[:half]])),
        key=lambda cut: np.mean(here[:half] >= cut) - math.exp(epsilon) * np.mean(there[:half] >= cut),
    )
    hits, misses = int(np.sum(here[half:] >= best)), int(np.sum(there[half:] >= best))
    trials = len(here) - half
    low = stats.binomtest(hits, trials).proportion_ci(1 - 2 * ALPHA, method="exact").low
    high = stats.binomtest(misses, trials).proportion_ci(1 - 2 * ALPHA, method="exact").high
    return float(low - math.exp(epsilon) * high)


def worst_excess(query, here, there, terms: Terms, seed: int) -> float:
    """The bound in either direction; the noise is that of ``terms``, the claim that of EPSILON."""
    setting = Setting(as_schema(SCHEMA), terms)
    forward, backward = (scores(spy(query), *pair, setting, seed) for pair in ((here, there), (there, here)))
    return max(excess(*forward, EPSILON), excess(*backward, EPSILON))


@pytest.mark.parametrize("name", PAIRS)
def test_no_outcome_tells_more_than_epsilon(name: str) -> None:
    query, here, there, neighbours = PAIRS[name]
    assert worst_excess(query, here, there, Terms(EPSILON, neighbours=neighbours), seed=1) <= 0


@pytest.mark.parametrize("name", PAIRS)
def test_half_the_noise_is_caught(name: str) -> None:
    """Terms of twice the epsilon stand for a mechanism that draws half the noise and claims epsilon."""
    query, here, there, neighbours = PAIRS[name]
    broken = Terms(2 * EPSILON, neighbours=neighbours)
    assert worst_excess(query, here, there, broken, seed=1) > 0


GAUSSIAN = (
    "count, added",
    "histogram, replaced",
    "sum, replaced",
    "mean, added",
    "mean of some, replaced",
    "variance, added",
)


@pytest.mark.parametrize("name", GAUSSIAN)
def test_gaussian_noise_keeps_to_epsilon_and_delta_and_half_of_it_is_caught(name: str) -> None:
    query, here, there, neighbours = PAIRS[name]
    terms = Terms(EPSILON, DELTA, neighbours=neighbours)
    assert worst_excess(query, here, there, terms, seed=3) <= DELTA
    loud = gaussian_epsilon(gaussian_noise(EPSILON, DELTA) / 2, DELTA)  # what half the noise is good for
    assert worst_excess(query, here, there, dataclasses.replace(terms, epsilon=loud), seed=5) > DELTA


def test_two_rows_of_one_person_are_protected_together_and_not_by_noise_for_one() -> None:
    query, pair = Histogram("city"), ((([0] * 3, "abb", None)), (([0], "a", None)))
    both = Terms(EPSILON, unit=PrivacyUnit("person", 2))
    assert worst_excess(query, *pair, both, seed=7) <= 0
    assert worst_excess(query, *pair, Terms(EPSILON), seed=7) > 0
