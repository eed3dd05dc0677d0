"""Basic and strong composition, step by step as the theorems state them."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event

from tacit.accounting import dpsgd_event, epsilon, gaussian_epsilon
from tacit.core import Neighbours, UnsupportedError


def test_strong_is_theorem_3_20_on_the_papers_amplification() -> None:
    q, sigma, steps, delta = 0.01, 4.0, 10_000, 1e-5

    def at(share: float) -> float:
        step_delta = (1 - share) * delta / (steps * q)
        step = q * math.sqrt(2 * math.log(1.25 / step_delta)) / sigma
        return math.sqrt(2 * steps * math.log(1 / (share * delta))) * step + steps * step * math.expm1(step)

    best = min(at(share) for share in np.linspace(0.001, 0.999, 2000))
    assert epsilon(dpsgd_event(q, sigma, steps), delta, accountant="strong") == pytest.approx(best, rel=1e-4)


def test_rigorous_is_theorem_3_5_on_proven_amplification() -> None:
    q, sigma, steps, delta = 0.01, 4.0, 10_000, 1e-5

    def at(share: float) -> float:
        base = gaussian_epsilon(sigma, (1 - share) * delta / (steps * q))
        step = math.log1p(q * math.expm1(base))
        return steps * step * math.tanh(step / 2) + math.sqrt(-2 * math.log(share * delta) * steps) * step

    best = min(at(share) for share in np.linspace(0.01, 0.99, 200))
    assert epsilon(dpsgd_event(q, sigma, steps), delta, accountant="strong-rigorous") == pytest.approx(best, rel=1e-3)


def test_basic_adds_up_and_wins_for_one_step() -> None:
    one = epsilon(dpsgd_event(0.1, 1.0, 1), 1e-6, accountant="basic")
    assert one == pytest.approx(math.log1p(0.1 * math.expm1(gaussian_epsilon(1.0, 1e-5))), rel=1e-9)
    assert epsilon(dpsgd_event(0.1, 1.0, 1), 1e-6, accountant="strong-rigorous") == one
    five = epsilon(dpsgd_event(0.1, 1.0, 5), 1e-6, accountant="basic")
    assert five == pytest.approx(5 * math.log1p(0.1 * math.expm1(gaussian_epsilon(1.0, 2e-6))), rel=1e-9)


def test_pure_mechanisms_need_no_delta() -> None:
    event = dp_event.ComposedDpEvent(
        [
            dp_event.SelfComposedDpEvent(dp_event.LaplaceDpEvent(4.0), 3),
            dp_event.DiscreteLaplaceDpEvent(0.2, 2),
            dp_event.PoissonSampledDpEvent(0.5, dp_event.LaplaceDpEvent(1.0)),
        ]
    )
    expected = 3 / 4 + 0.4 + math.log1p(0.5 * math.expm1(1.0))
    for accountant in ("basic", "pld"):
        assert epsilon(event, 0.0, accountant=accountant) == pytest.approx(expected, rel=1e-12)
    assert epsilon(event, 1e-5, accountant="basic") == pytest.approx(expected, rel=1e-12)
    assert epsilon(event, 1e-5) < expected
    assert epsilon(dpsgd_event(0.1, 1.0, 1), 0.0) == math.inf
    assert epsilon(dp_event.ZCDpEvent(1.0), 0.0, accountant="rdp") == math.inf


def test_no_theorem_here_for_replaced_records() -> None:
    for accountant in ("basic", "strong", "strong-rigorous", "gdp"):
        with pytest.raises(UnsupportedError, match=r"replace-one relation. Use 'pld'"):
            epsilon(dpsgd_event(0.1, 1.0, 2), 1e-5, accountant=accountant, neighbours=Neighbours.REPLACE_ONE)


@pytest.mark.parametrize("accountant", ["basic", "strong-rigorous"])
def test_a_replaced_record_moves_two_contributions(accountant):
    """Twice the sensitivity, which is half the noise; delta 0 is a delta where all noise is Laplace's."""
    laplace, gaussian = dp_event.LaplaceDpEvent(4.0), dp_event.GaussianDpEvent(6.0)
    replace, add = Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE
    assert epsilon(laplace, 0.0, neighbours=replace) == 0.5
    both, halved = (
        dp_event.ComposedDpEvent([dp_event.LaplaceDpEvent(4.0 / by), dp_event.GaussianDpEvent(6.0 / by)])
        for by in (1, 2)
    )
    found = epsilon(both, 1e-5, accountant=accountant, neighbours=replace)
    assert found == pytest.approx(epsilon(halved, 1e-5, accountant=accountant, neighbours=add))
    assert found > 1.5 * epsilon(both, 1e-5, accountant=accountant, neighbours=add)
    assert found >= epsilon(both, 1e-5, accountant="pld", neighbours=replace)
    sampled = dp_event.PoissonSampledDpEvent(0.1, gaussian)
    with pytest.raises(UnsupportedError, match="replace-one"):
        epsilon(sampled, 1e-5, accountant=accountant, neighbours=replace)
