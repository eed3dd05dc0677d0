"""Answers: the right statistic beneath the noise, noise of exactly the promised law, and intervals that hold."""

import math

import numpy as np
import pytest
from query_tables import SCHEMA, table
from scipy import stats

from tacit.core.privacy import Neighbours, PrivacyUnit
from tacit.core.randomness import Randomness
from tacit.datasets.tables import as_schema
from tacit.queries import Count, Histogram, Mean, Quantile, Sum, Terms, Top, Variance, Where, ask
from tacit.queries.intervals import combined_radius, radius
from tacit.queries.query import Setting, Tally

RNG = np.random.default_rng(3)
ROWS = 4000
X = np.clip(RNG.normal(0.5, 0.8, ROWS), -1, 3)
CITY = RNG.choice(["a", "b", "c"], ROWS, p=[0.5, 0.3, 0.2])
FLAG = RNG.integers(0, 2, ROWS)
TABLE = table(X, CITY, FLAG)
SCHEMA_ = as_schema(SCHEMA)
SILENT = 1e7  # an epsilon at which noise is nothing
RELATIONS = [Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE]
FLAGGED = Where("flag", "1")


def without_noise(query, neighbours=Neighbours.ADD_REMOVE):
    return ask(query, TABLE, Terms(SILENT, neighbours=neighbours)).value


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("where", [None, FLAGGED])
def test_without_noise_the_answers_are_numpys(where, neighbours) -> None:
    x, city = (X, CITY) if where is None else (X[FLAG == 1], CITY[FLAG == 1])
    if where is not None or neighbours is Neighbours.ADD_REMOVE:
        assert without_noise(Count("x", where=where), neighbours) == len(x)
    assert without_noise(Sum("x", where=where), neighbours) == pytest.approx(x.sum(), abs=4 / 2**16)
    assert without_noise(Mean("x", where=where), neighbours) == pytest.approx(x.mean(), abs=1e-7)
    assert without_noise(Variance("x", where=where), neighbours) == pytest.approx(x.var(), abs=1e-7)
    edges = (-1.0, -0.25, 0.5, 3.0)
    assert without_noise(Histogram("x", edges, where=where), neighbours) == np.histogram(x, edges)[0].tolist()
    assert without_noise(Histogram("x", 7, where=where), neighbours) == np.histogram(x, 7, (-1, 3))[0].tolist()
    counts = [int(np.sum(city == name)) for name in "abc"]
    assert without_noise(Histogram("city", where=where), neighbours) == counts
    assert without_noise(Top("city", count=3, where=where), neighbours) == ["a", "b", "c"]
    for q in (0.0, 0.1, 0.5, 0.99, 1.0):
        found = without_noise(Quantile("x", q, where=where), neighbours)
        low, high = (np.quantile(x, q, method=method) for method in ("lower", "higher"))
        assert low - 1e-4 <= found <= high + 1e-4


def test_booleans_are_numbers_and_cells() -> None:
    assert without_noise(Mean("flag")) == pytest.approx(FLAG.mean(), abs=1e-7)
    assert without_noise(Sum("flag")) == pytest.approx(FLAG.sum(), abs=1 / 2**16)
    answer = ask(Histogram("flag"), TABLE, Terms(SILENT))
    assert answer.value == [int(np.sum(FLAG == 0)), int(np.sum(FLAG == 1))]
    assert answer.to_dict()["cells"] == ["false", "true"]


def test_outer_bins_hold_what_lies_beyond_their_edges() -> None:
    assert without_noise(Histogram("x", (0.0, 0.5, 1.0))) == [int(np.sum(X < 0.5)), int(np.sum(X >= 0.5))]


@pytest.mark.parametrize(("delta", "epsilon"), [(0.0, 0.7), (1e-5, 2.0)])
def test_the_noise_of_an_answer_has_its_exact_law_and_no_other(delta: float, epsilon: float) -> None:
    """Chi-square on the integers; a scale off by five percent is seen."""
    setting, draws = Setting(SCHEMA_, Terms(epsilon, delta)), 25_000 if delta == 0 else 12_000
    query = Histogram("city")
    noise = query.noise(setting)
    sums = query.read(Tally([100] * draws, 0), setting, Randomness(unsafe_seed=2).stream("law")).value
    values = np.array(sums) - 100

    def pvalue(scale: float) -> float:
        support = np.arange(-4000, 4001)
        if delta:
            masses = stats.norm.cdf((support + 0.5) / scale) - stats.norm.cdf((support - 0.5) / scale)
        else:
            masses = np.tanh(1 / (2 * scale)) * np.exp(-np.abs(support) / scale)
        kept = draws * masses > 20
        expected = np.append(draws * masses[kept], draws * masses[~kept].sum())
        counts = np.array([np.sum(values == at) for at in support[kept]])
        return float(stats.chisquare(np.append(counts, draws - counts.sum()), expected).pvalue)

    assert noise.scale == pytest.approx(1 / epsilon if delta == 0 else noise.scale)
    assert pvalue(noise.scale) > 1e-3
    for near_miss in (0.95, 1.05):
        assert pvalue(near_miss * noise.scale) < 1e-3


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("confidence", [0.5, 0.95])
@pytest.mark.parametrize("scale", [0.3, 1.0, 6.5])
def test_the_radius_of_one_integer_is_the_least_that_holds(delta: float, confidence: float, scale: float) -> None:
    query = Count("x")
    unit = query.noise(Setting(SCHEMA_, Terms(1.0, delta))).scale
    mechanism = query.noise(Setting(SCHEMA_, Terms(1.0, delta, unit=PrivacyUnit("p", 1)))).mechanism
    mechanism = type(mechanism)(scale * unit, 1)
    found = radius(mechanism, confidence)
    support = np.arange(-2000, 2001)
    if delta:
        masses = stats.norm.cdf((support + 0.5) / (scale * unit)) - stats.norm.cdf((support - 0.5) / (scale * unit))
    else:
        masses = np.tanh(1 / (2 * scale * unit)) * np.exp(-np.abs(support) / (scale * unit))
    assert masses[np.abs(support) <= found].sum() >= confidence - 1e-12
    assert found == 0 or masses[np.abs(support) < found].sum() < confidence


@pytest.mark.parametrize("weights", [(1.0,), (0.3, 0.7), (0.5, 0.5), (1.0, 0.0), (0.2, 0.3, 0.5), (1.0, 1.0, 1.0)])
def test_the_radius_of_a_weighted_sum_holds_and_is_not_wide(weights) -> None:
    rng = np.random.default_rng(1)
    for delta in (0.0, 1e-5):
        mechanism = Mean("x").noise(Setting(SCHEMA_, Terms(1.0, delta))).mechanism
        noise = rng.laplace if delta == 0 else rng.normal
        drawn = np.abs(noise(0, float(mechanism.scale), (200_000, len(weights))) @ np.array(weights))
        found = combined_radius(mechanism, weights, 0.95)
        assert np.mean(drawn <= found) == pytest.approx(0.95, abs=0.003)


KINDS = [Count("x"), Histogram("city"), Sum("x"), Mean("x"), Variance("x"), Mean("x", where=FLAGGED)]


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("query", KINDS, ids=lambda query: f"{query.kind} {query.where}")
def test_intervals_hold_what_they_promise(query, neighbours, delta: float) -> None:
    """At 80 percent, so that too narrow and too wide are both seen."""
    if query == Count("x") and neighbours is Neighbours.REPLACE_ONE:
        query = Count("x", where=FLAGGED)
    truth = np.atleast_1d(without_noise(query, neighbours))
    setting = Setting(SCHEMA_, Terms(0.5, delta, neighbours=neighbours), 0.8)
    tally, stream, trials = query.tally(TABLE), Randomness(unsafe_seed=8).stream("intervals"), 250
    held = 0
    for _ in range(trials):
        low, high = np.transpose(np.atleast_2d(query.read(tally, setting, stream).interval))
        held += int(np.sum((low <= truth) & (truth <= high)))
    share = held / (trials * len(truth))
    assert stats.binomtest(held, trials * len(truth), 0.8, alternative="less").pvalue > 1e-4
    assert share < 0.93


def test_intervals_of_few_rows_are_honest() -> None:
    """Where noise drowns the rows, the interval of a mean is all that the bounds allow."""
    few = table(X[:5])
    for query, most in ((Mean("x"), 3 - -1), (Variance("x"), 4.0)):
        for seed in range(20):
            found = ask(query, few, Terms(0.1), randomness=Randomness(unsafe_seed=seed)).reading
            assert found.interval[1] - found.interval[0] == most
            assert found.interval[0] <= found.value <= found.interval[1]


def test_choices_keep_to_their_error_bounds() -> None:
    setting = Setting(SCHEMA_, Terms(0.2), 0.9)
    stream = Randomness(unsafe_seed=4).stream("bounds")
    quantile = Quantile("x", 0.3)
    tally = quantile.tally(TABLE)
    found = [quantile.read(tally, setting, stream) for _ in range(40)]
    missed = [max(0, 0.7 * np.sum(v.value > X) - 0.3 * np.sum(v.value <= X)) for v in found]
    assert np.mean([miss <= v.facts["rank_error"] for miss, v in zip(missed, found, strict=True)]) >= 0.9
    assert found[0].facts["rank_error"] < 0.05 * ROWS


def test_a_mean_from_shares_beats_a_sum_over_a_count() -> None:
    """What the module says: half the variance of a centred sum and a count with half of epsilon for each."""
    epsilon, stream = 1.0, Randomness(unsafe_seed=9).stream("beats")
    setting = Setting(SCHEMA_, Terms(epsilon))
    tally = Mean("x").tally(TABLE)
    errors = [Mean("x").read(tally, setting, stream).value - X.mean() for _ in range(1500)]
    t = (X.mean() + 1) / 4
    promised = 2 * 4**2 * (t**2 + (1 - t) ** 2) / (epsilon * ROWS) ** 2
    assert np.var(errors) == pytest.approx(promised, rel=0.25)
    rng = np.random.default_rng(5)
    sums = (X - 1).sum() + rng.laplace(0, 2 * 2 / epsilon, 20_000)
    counts = ROWS + rng.laplace(0, 2 / epsilon, 20_000)
    assert np.var(1 + sums / counts) == pytest.approx(2 * promised, rel=0.1)


def test_the_classical_bound_asks_for_more_noise_and_only_below_one() -> None:
    from tacit.queries.noise import Distance, Noise, classical_scale

    distance = Distance.of_one_integer(1)
    for epsilon in (0.1, 0.5, 0.99):
        terms = Terms(epsilon, 1e-6)
        assert classical_scale(terms, distance) > 1.1 * Noise.calibrated(terms, distance).scale
    assert classical_scale(Terms(1.0, 1e-6), distance) is None
    assert classical_scale(Terms(0.5), distance) is None


def test_an_answer_says_what_it_is_in_plain_values() -> None:
    found = ask(Mean("x", where=FLAGGED), TABLE, Terms(0.5, 1e-6, unit=PrivacyUnit("person", 2))).to_dict()
    assert {"kind": "mean", "column": "x", "where": "flag=1", "epsilon": 0.5, "delta": 1e-6}.items() <= found.items()
    assert "(0.5, 1e-06)-differentially private for one person (up to 2 examples)" in found["statement"]
    assert "a mean of x where flag=1 by rounded Gaussian noise" in found["statement"]
    seeded = ask(Count("x"), TABLE, Terms(0.5), randomness=Randomness(unsafe_seed=1)).to_dict()
    assert "not differentially private" in seeded["statement"]
    assert math.isfinite(seeded["scale"])
