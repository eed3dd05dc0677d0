"""Smooth sensitivity of the data-dependent cost by brute force over all votes, and the release of epsilon."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, GaussianDpEvent
from scipy import integrate

from tacit.accounting import ACCOUNTANTS, epsilon, rdp_to_epsilon
from tacit.accounting.pate import (
    PrivateCost,
    PrivateEpsilon,
    confident_gnmax_cost,
    gnmax_cost,
    gnmax_divergences,
    gnmax_epsilon,
    knn_event,
    knn_query_event,
    knn_screening_event,
    knn_vote_event,
    release_epsilon,
    threshold_cost,
    threshold_divergences,
)
from tacit.accounting.pate.smooth import _effective_gap
from tacit.accounting.pate.votes import gaps
from tacit.accounting.renyi import ORDERS
from tacit.accounting.smooth_release import SmoothReleaseDpEvent
from tacit.core import InputError
from tacit.core.errors import UnsupportedError
from tacit.core.privacy import Neighbours

Row = tuple[int, ...]


def all_votes(teachers: int, classes: int) -> list[Row]:
    return [row for row in itertools.product(range(teachers + 1), repeat=classes) if sum(row) == teachers]


def distance(one: Row, other: Row) -> int:
    """How many teachers must vote otherwise."""
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) // 2


def costs_of(rows: list[Row], kind: str, order: float, sigma: float) -> list[PrivateCost]:
    teachers = sum(rows[0])
    if kind == "gnmax":
        return [gnmax_cost([row], sigma, order, teachers=teachers) for row in rows]
    return [threshold_cost([row], 0.7 * teachers, sigma, order, teachers=teachers) for row in rows]


CASES = [
    ("gnmax", 9, 3, 1.0, 2.0),
    ("gnmax", 9, 3, 0.6, 1.5),
    ("gnmax", 14, 2, 1.5, 3.0),
    ("gnmax", 5, 4, 0.7, 2.0),
    ("threshold", 9, 3, 1.0, 2.0),
    ("threshold", 14, 2, 2.5, 8.0),
]


@pytest.mark.parametrize(("kind", "teachers", "classes", "sigma", "order"), CASES)
def test_sensitivities_hold_at_every_distance(
    kind: str, teachers: int, classes: int, sigma: float, order: float
) -> None:
    rows = all_votes(teachers, classes)
    costs = costs_of(rows, kind, order, sigma)
    value = np.asarray([cost.unsafe_divergence for cost in costs])
    apart = np.asarray([[distance(a, b) for b in rows] for a in rows])
    assert value.max() > 1.5 * value.min()
    local = np.where(apart == 1, np.abs(value[:, None] - value), 0.0).max(axis=1)
    for i, cost in enumerate(costs):
        for away in range(teachers + 1):
            assert cost.unsafe_sensitivities[away] >= local[apart[i] <= away].max() - 1e-12


@pytest.mark.parametrize(("kind", "teachers", "classes", "sigma", "order"), CASES)
@pytest.mark.parametrize("beta", [0.02, 0.2])
def test_the_smooth_sensitivity_is_smooth(
    kind: str, teachers: int, classes: int, sigma: float, order: float, beta: float
) -> None:
    rows = all_votes(teachers, classes)
    smooth = np.asarray([cost.unsafe_smooth_sensitivity(beta) for cost in costs_of(rows, kind, order, sigma)])
    for (i, a), (j, b) in itertools.combinations(enumerate(rows), 2):
        if distance(a, b) == 1:
            assert abs(math.log(smooth[i] / smooth[j])) <= beta * (1 + 1e-9)


def test_it_is_smooth_for_several_queries_together() -> None:
    random = np.random.default_rng(3)
    teachers, queries, beta = 20, 6, 0.05
    terms = {"threshold": 12.0, "sigma1": 4.0, "sigma2": 2.0, "order": 3.0, "teachers": teachers}
    for _ in range(40):
        ballots = np.where(random.random((queries, teachers)) < 0.8, 0, random.integers(0, 3, (queries, teachers)))
        changed = ballots.copy()
        changed[:, random.integers(teachers)] = random.integers(0, 3, queries)
        answered = random.random(queries) < 0.6
        here, there = (
            confident_gnmax_cost([np.bincount(row, minlength=3) for row in every], answered, **terms)
            for every in (ballots, changed)
        )
        one, other = here.unsafe_smooth_sensitivity(beta), there.unsafe_smooth_sensitivity(beta)
        assert abs(here.unsafe_divergence - there.unsafe_divergence) <= min(one, other) + 1e-12
        assert abs(math.log(one / other)) <= beta * (1 + 1e-9)


def test_one_vote_moves_the_effective_gap_by_at_most_two() -> None:
    random = np.random.default_rng(4)
    for sigma in (0.5, 3.0, 40.0):
        for _ in range(300):
            row = random.multinomial(60, random.dirichlet(np.full(5, 0.5)))
            other = row.copy()
            other[random.choice(np.flatnonzero(row))] -= 1
            other[random.integers(5)] += 1
            one, two = _effective_gap(gaps(np.stack([row, other])), sigma)
            assert abs(one - two) <= 2 + 1e-7


def test_the_cost_is_a_bound_close_to_the_divergence() -> None:
    random = np.random.default_rng(6)
    votes = random.multinomial(250, random.dirichlet([30] + [0.3] * 9, size=50))
    exact = gnmax_divergences(votes, 40.0, [12.0]).sum()
    cost = gnmax_cost(votes, 40.0, 12.0, teachers=250)
    assert exact * (1 - 1e-12) <= cost.unsafe_divergence <= exact * 1.05
    assert cost.limit == pytest.approx(50 * 12 / 40**2)
    tests = threshold_cost(votes, 200.0, 150.0, 12.0, teachers=250)
    assert tests.unsafe_divergence == pytest.approx(threshold_divergences(votes.max(axis=1), 200, 150, [12.0]).sum())


def test_one_class_costs_nothing_and_moves_nothing() -> None:
    cost = gnmax_cost([[7]], 1.0, 2.0, teachers=7)
    assert cost.unsafe_divergence == cost.unsafe_smooth_sensitivity(0.1) == 0


def normal_divergence(order: float, mean: float, wide: float, narrow: float) -> float:
    """The Rényi divergence of N(0, wide^2) from N(mean, narrow^2), by quadrature around its mode."""
    variance = order * narrow**2 + (1 - order) * wide**2
    mode = (1 - order) * mean * wide**2 / variance
    width = wide * narrow / math.sqrt(variance)

    def log_integrand(x: float) -> float:
        first = -(x**2) / (2 * wide**2) - math.log(wide)
        second = -((x - mean) ** 2) / (2 * narrow**2) - math.log(narrow)
        return order * first + (1 - order) * second - 0.5 * math.log(2 * math.pi)

    peak = log_integrand(mode)
    area = integrate.quad(lambda x: math.exp(log_integrand(x) - peak), mode - 12 * width, mode + 12 * width)[0]
    return (math.log(area) + peak) / (order - 1)


@pytest.mark.parametrize("order", [1.5, 8.0, 20.0])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.4, 0.48])
@pytest.mark.parametrize("failure", [0.5, 0.01])
def test_the_cost_of_a_release_bounds_every_pair_of_neighbours(order: float, share: float, failure: float) -> None:
    release = SmoothReleaseDpEvent(share / order, 6.0, failure)
    bound = release.divergence(order)
    exact = []
    for log_ratio in np.linspace(-release.beta, release.beta, 21):
        ratio = math.exp(log_ratio)
        mean = min(1.0, ratio) + release.shift * release.noise_multiplier * abs(ratio - 1)
        exact.append(normal_divergence(order, mean, 6.0, 6.0 * ratio))
    assert bound >= max(exact) * (1 - 1e-9)
    if failure == 0.5:
        assert bound == pytest.approx(max(exact), rel=0.02)


def test_the_published_closed_form_is_too_small_where_beta_is_large() -> None:
    order, beta, sigma = 10.0, 0.049, 10.0
    published = order * math.exp(2 * beta) / sigma**2
    published += (-0.5 * math.log(1 - 2 * order * beta) + beta * order) / (order - 1)
    exact = normal_divergence(order, math.exp(-beta), sigma, sigma * math.exp(-beta))
    assert published < exact / 2
    assert SmoothReleaseDpEvent(beta, sigma).divergence(order) == pytest.approx(exact, rel=1e-6)


def test_a_release_adds_noise_shift_and_its_own_cost() -> None:
    cost = gnmax_cost([[240, 10, 0]] * 300, 40.0, 10.0, teachers=250)
    release = SmoothReleaseDpEvent(0.03, 8.0, 0.05)
    spread = 8.0 * cost.unsafe_smooth_sensitivity(0.03)
    assert 0 < spread < cost.limit
    for draw in (-1.0, 0.0, 0.7):
        divergence = cost.unsafe_divergence + spread * (draw + 1.6448536) + release.divergence(10.0) + 0.25
        released = release_epsilon(cost, release, 1e-5, standard_normal=draw, public_divergence=0.25)
        assert released.epsilon == pytest.approx(rdp_to_epsilon(10.0, divergence, 1e-5), rel=1e-6)
        assert (released.delta, released.order, released.failure) == (1e-5, 10.0, 0.05)
    assert released.epsilon > gnmax_epsilon([[240, 10, 0]] * 300, 40.0, 1e-5).unsafe_value
    own = release.divergence(10.0)
    for draw, divergence in ((-1e6, own), (1e6, own + cost.limit)):
        released = release_epsilon(cost, release, 1e-5, standard_normal=draw)
        assert released.epsilon == pytest.approx(rdp_to_epsilon(10.0, divergence, 1e-5))


def test_private_numbers_do_not_show() -> None:
    value = gnmax_epsilon([[240, 10, 0]] * 30, 40.0, 1e-5)
    cost = gnmax_cost([[240, 10, 0]] * 30, 40.0, 10.0, teachers=250)
    assert str(value) == f"{value}" == repr(value) == "PrivateEpsilon(delta=1e-05)"
    assert repr(cost) == "PrivateCost(order=10.0, teachers=250, limit=0.1875)"
    for convert in (float, int, round, math.floor):
        with pytest.raises(TypeError):
            convert(value)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        value < 1.0  # type: ignore[operator]  # noqa: B015
    assert PrivateEpsilon(1.0, 1e-5).unsafe_value == 1.0


def test_costs_of_other_orders_or_teachers_do_not_add_up() -> None:
    one = gnmax_cost([[5, 5]], 2.0, 3.0, teachers=10)
    assert (one + one).unsafe_divergence == 2 * one.unsafe_divergence
    assert (one + one).limit == 2 * one.limit
    for other in (gnmax_cost([[5, 5]], 2.0, 4.0, teachers=10), gnmax_cost([[5, 6]], 2.0, 3.0, teachers=11)):
        with pytest.raises(InputError, match="costs add up"):
            one + other


def test_bad_releases_are_refused() -> None:
    with pytest.raises(InputError, match="below 1 at order 10"):
        SmoothReleaseDpEvent(0.06, 5.0).divergence(10.0)
    with pytest.raises(InputError, match=r"at most 0\.5"):
        SmoothReleaseDpEvent(0.06, 5.0, 0.6)
    cost = gnmax_cost([[5, 5]], 2.0, 3.0, teachers=10)
    with pytest.raises(InputError, match="standard_normal"):
        release_epsilon(cost, SmoothReleaseDpEvent(0.05, 5.0), 1e-5, standard_normal=math.nan)
    with pytest.raises(InputError, match="order=1"):
        gnmax_cost([[5, 5]], 2.0, 1.0, teachers=10)


@pytest.mark.parametrize("votes_of_sample", [0, 1])
def test_one_record_moves_one_vote_of_the_nearest_neighbours(votes_of_sample: int) -> None:
    """Private-kNN: a record that joins the k nearest pushes another one out, so the counts move by sqrt 2, not 1."""
    random = np.random.default_rng(votes_of_sample)
    farthest = 0.0
    for _ in range(200):
        near, labels = random.random(30), random.integers(0, 4, 30)

        def votes(kept: np.ndarray, near: np.ndarray = near, labels: np.ndarray = labels) -> np.ndarray:
            chosen = kept[np.argsort(near[kept])[:7]]
            return np.bincount(labels[chosen], minlength=4)

        everyone = np.arange(30)
        moved = votes(everyone) - votes(np.delete(everyone, random.integers(30)))
        farthest = max(farthest, float(np.linalg.norm(moved)))
        assert abs(votes(everyone).max() - votes(np.delete(everyone, 3)).max()) <= 1
    assert farthest == pytest.approx(math.sqrt(2))


def test_private_knn_is_made_of_sampled_gaussians() -> None:
    vote, test = knn_vote_event(0.05, 25.0), knn_screening_event(0.05, 75.0)
    assert vote.event.noise_multiplier == pytest.approx(25 / math.sqrt(2))
    assert test.event.noise_multiplier == 75
    assert vote.sampling_probability == test.sampling_probability == 0.05
    alone = epsilon(knn_event(735, 735, sampling_rate=0.05, sigma1=None, sigma2=25.0), 1e-5)
    screened = epsilon(knn_event(2000, 735, sampling_rate=0.05, sigma1=75.0, sigma2=25.0), 1e-5)
    assert 0 < alone < screened < 1
    assert epsilon(knn_query_event(0.05, 75.0, 25.0), 1e-5) > epsilon(vote, 1e-5)
    everything = epsilon(knn_event(0, 735, sampling_rate=1.0, sigma1=None, sigma2=25.0), 1e-5)
    assert everything > 10 * alone
    with pytest.raises(InputError):
        knn_vote_event(0.0, 25.0)


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_accountants_charge_what_the_release_costs(neighbours):
    """Rényi accountants know the event at the orders where it is bounded, and others refuse it with the remedy."""
    event = SmoothReleaseDpEvent(0.01, 8.0, 0.05)
    charged = ACCOUNTANTS["rdp"].divergences(event, neighbours)
    bounded = np.array([event.is_bounded_at(order) for order in ORDERS])
    assert charged[bounded] == pytest.approx([event.divergence(order) for order in ORDERS[bounded]])
    assert np.isinf(charged[~bounded]).all()
    assert (~bounded).any()
    beside = ComposedDpEvent([event, GaussianDpEvent(3.0)])
    gaussian = ACCOUNTANTS["rdp"].divergences(GaussianDpEvent(3.0), neighbours)
    assert ACCOUNTANTS["rdp"].divergences(beside, neighbours)[bounded] == pytest.approx((charged + gaussian)[bounded])
    with pytest.raises(UnsupportedError, match="Use 'rdp'"):
        epsilon(event, 1e-5, accountant="pld", neighbours=neighbours)
