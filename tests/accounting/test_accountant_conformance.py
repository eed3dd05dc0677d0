"""One suite that every accountant must pass."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import ACCOUNTANTS, Accountant, delta, dpsgd_event, epsilon, epsilon_by_accountant
from tacit.core import Neighbours, UnsupportedError

ADD_REMOVE = Neighbours.ADD_REMOVE
ALL = pytest.mark.parametrize("accountant", ACCOUNTANTS.values(), ids=ACCOUNTANTS.keys())
PROVEN = {name: accountant for name, accountant in ACCOUNTANTS.items() if accountant.is_upper_bound}
# What discretisation may cost: values that should be ordered may be out of order by this much.
SLACK = 1 + 1e-3


def test_the_names_of_the_contract() -> None:
    assert set(ACCOUNTANTS) == {"moments", "rdp", "pld", "gdp", "strong", "strong-rigorous", "basic"}
    assert set(ACCOUNTANTS) - set(PROVEN) == {"gdp", "strong"}
    for name, accountant in ACCOUNTANTS.items():
        assert accountant.name == name


@ALL
@pytest.mark.parametrize("q", [0.001, 0.2, 1.0])
def test_monotone_in_every_parameter(accountant: Accountant, q: float) -> None:
    def at(rate: float = q, noise: float = 2.0, steps: int = 300, target: float = 1e-5) -> float:
        return accountant.epsilon(dpsgd_event(rate, noise, steps), target, ADD_REMOVE)

    base = at()
    assert 0 < base < math.inf
    assert at(target=1e-7) >= base
    assert at(target=1e-3) <= base
    assert at(steps=3000) * SLACK >= base >= at(steps=30) / SLACK
    assert at(noise=1.5) * SLACK >= base >= at(noise=4.0) / SLACK
    assert at(rate=min(1.0, 2 * q)) * SLACK >= base >= at(rate=q / 3) / SLACK


@ALL
def test_nothing_done_costs_nothing(accountant: Accountant) -> None:
    for event in (
        dpsgd_event(0.1, 1.0, 0),
        dp_event.NoOpDpEvent(),
        dp_event.ComposedDpEvent([]),
        dp_event.PoissonSampledDpEvent(0.0, dp_event.GaussianDpEvent(1.0)),
        dp_event.SelfComposedDpEvent(dp_event.NoOpDpEvent(), 5),
    ):
        assert accountant.supports(event, ADD_REMOVE)
        assert accountant.epsilon(event, 1e-5, ADD_REMOVE) == 0
        assert accountant.delta(event, 0.0, ADD_REMOVE) <= 1e-290


@ALL
def test_no_noise_is_no_privacy(accountant: Accountant) -> None:
    for event in (
        dp_event.NonPrivateDpEvent(),
        dp_event.GaussianDpEvent(0.0),
        dpsgd_event(0.1, 0.0, 3),
        dp_event.ComposedDpEvent([dp_event.GaussianDpEvent(1.0), dp_event.NonPrivateDpEvent()]),
    ):
        assert accountant.epsilon(event, 1e-5, ADD_REMOVE) == math.inf
        assert accountant.delta(event, 3.0, ADD_REMOVE) == 1.0


@ALL
@pytest.mark.parametrize(
    "event",
    [
        dp_event.UnsupportedDpEvent(),
        dp_event.SampledWithReplacementDpEvent(100, 10, dp_event.GaussianDpEvent(1.0)),
        dp_event.PoissonSampledDpEvent(0.1, dp_event.UnsupportedDpEvent()),
        dp_event.ComposedDpEvent([dp_event.GaussianDpEvent(1.0), dp_event.UnsupportedDpEvent()]),
    ],
)
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_an_unknown_event_is_refused(accountant: Accountant, event: dp_event.DpEvent, neighbours: Neighbours) -> None:
    assert not accountant.supports(event, neighbours)
    for ask in (accountant.epsilon, accountant.delta):
        with pytest.raises(UnsupportedError, match=f"accountant='{accountant.name}'") as caught:
            ask(event, 0.5, neighbours)
        assert "\n" not in str(caught.value)


@ALL
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_supports_means_that_epsilon_answers(accountant: Accountant, neighbours: Neighbours) -> None:
    gaussian = dp_event.GaussianDpEvent(2.0)
    for event in (
        gaussian,
        dpsgd_event(0.1, 1.0, 20),
        dp_event.LaplaceDpEvent(3.0),
        dp_event.DiscreteLaplaceDpEvent(0.2, 2),
        dp_event.ZCDpEvent(0.01),
        dp_event.RandomizedResponseDpEvent(0.5, 3),
        dp_event.SampledWithoutReplacementDpEvent(100, 10, gaussian),
        dp_event.TruncatedSubsampledGaussianDpEvent(100, 0.1, 20, 2.0),
        dp_event.SingleEpochTreeAggregationDpEvent(3.0, 10),
        dp_event.RepeatAndSelectDpEvent(gaussian, 2.0, 1.0),
        dp_event.MixtureOfGaussiansDpEvent(2.0, [0.0, 1.0], [0.7, 0.3]),
    ):
        if accountant.supports(event, neighbours):
            assert 0 <= accountant.epsilon(event, 1e-5, neighbours) < math.inf
        else:
            with pytest.raises(UnsupportedError):
                accountant.epsilon(event, 1e-5, neighbours)


@ALL
def test_order_and_nesting_of_a_composition_do_not_matter(accountant: Accountant) -> None:
    first, second = dpsgd_event(0.1, 2.0, 10), dp_event.GaussianDpEvent(9.0)
    expected = accountant.epsilon(dp_event.ComposedDpEvent([first, second]), 1e-5, ADD_REMOVE)
    split = [dpsgd_event(0.1, 2.0, 4), dp_event.ComposedDpEvent([second, dp_event.NoOpDpEvent()])]
    other = dp_event.ComposedDpEvent([*split, dp_event.SelfComposedDpEvent(dpsgd_event(0.1, 2.0, 3), 2)])
    assert accountant.epsilon(other, 1e-5, ADD_REMOVE) == pytest.approx(expected, rel=1e-9)


@ALL
def test_delta_is_the_inverse_of_epsilon(accountant: Accountant) -> None:
    event = dpsgd_event(0.02, 1.5, 200)
    for target in (1e-8, 1e-4):
        found = accountant.epsilon(event, target, ADD_REMOVE)
        assert accountant.delta(event, found, ADD_REMOVE) == pytest.approx(target, rel=0.02)
        assert accountant.delta(event, 1.1 * found, ADD_REMOVE) < target


@given(
    st.floats(-4, 0).map(lambda x: 10**x),
    st.floats(math.log(0.5), math.log(30)).map(math.exp),
    st.integers(1, 5000),
    st.floats(-9, -2).map(lambda x: 10**x),
)
@settings(max_examples=40)
def test_every_proven_bound_lies_above_pld(q: float, noise: float, steps: int, target: float) -> None:
    values = epsilon_by_accountant(dpsgd_event(q, noise, steps), target)
    assert set(values) == set(ACCOUNTANTS)
    for name in PROVEN:
        assert values[name] * SLACK + 1e-9 >= values["pld"]


def test_many_rare_steps_are_seen_by_every_proven_accountant() -> None:
    # One step costs less than the rounding of 1; a thousand million of them do not.
    values = epsilon_by_accountant(dpsgd_event(1e-9, 0.5, 10**9), 1e-9)
    assert values["pld"] > 0
    for name in PROVEN:
        assert values[name] * SLACK >= values["pld"]


def test_full_sampling_and_plain_gaussians_agree() -> None:
    plain = dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(3.0), 12)
    for name in ACCOUNTANTS:
        sampled = epsilon(dpsgd_event(1.0, 3.0, 12), 1e-5, accountant=name)
        assert sampled == pytest.approx(epsilon(plain, 1e-5, accountant=name), rel=5e-4)


def test_gdp_is_exact_for_plain_gaussians() -> None:
    event = dp_event.ComposedDpEvent([dp_event.GaussianDpEvent(s) for s in (2.0, 3.0, 7.0)])
    assert epsilon(event, 1e-6, accountant="gdp") == pytest.approx(epsilon(event, 1e-6), rel=1e-12)
    assert delta(event, 1.0, accountant="gdp") == pytest.approx(delta(event, 1.0), rel=1e-12)


def test_replacing_a_record_costs_more_than_removing_it() -> None:
    event = dpsgd_event(0.05, 2.0, 100)
    removed, replaced, zeroed = (
        epsilon(event, 1e-5, neighbours=relation)
        for relation in (ADD_REMOVE, Neighbours.REPLACE_ONE, Neighbours.ZERO_OUT)
    )
    assert zeroed == removed < replaced < epsilon(dpsgd_event(0.05, 1.0, 100), 1e-5)


@pytest.mark.parametrize(
    ("event", "neighbours", "remedy"),
    [
        (
            dp_event.SampledWithoutReplacementDpEvent(9, 3, dp_event.GaussianDpEvent(1.0)),
            Neighbours.REPLACE_ONE,
            "'rdp'",
        ),
        (dp_event.ZCDpEvent(0.5), ADD_REMOVE, "'rdp'"),
        (dp_event.SingleEpochTreeAggregationDpEvent(1.0, 4), Neighbours.ZERO_OUT, "'rdp'"),
        (dp_event.RandomizedResponseDpEvent(0.5, 2), ADD_REMOVE, "No accountant"),
    ],
)
def test_pld_refuses_with_the_remedy(event: dp_event.DpEvent, neighbours: Neighbours, remedy: str) -> None:
    with pytest.raises(UnsupportedError, match=remedy):
        epsilon(event, 1e-5, neighbours=neighbours)


def test_deltas_of_a_curve_fall_with_epsilon() -> None:
    event = dpsgd_event(0.01, 1.0, 1000)
    deltas = [delta(event, float(at)) for at in np.linspace(0, 5, 12)]
    assert np.all(np.diff(deltas) < 0)
    assert 0 < deltas[-1] < deltas[0] < 1
