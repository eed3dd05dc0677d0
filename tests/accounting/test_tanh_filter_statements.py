"""The three epsilons of the tanh filter: claimed, true, and sound."""

import math

import pytest

from tacit.accounting import dpsgd_event, epsilon, tanh_filter_statements
from tacit.core.errors import InputError

# Table I: sigma 1.1, minibatches of 256, on the 60,000 images of MNIST, for 15 epochs.
PAPER = {"sampling_rate": 256 / 60_000, "noise_std": 1.1, "steps": 15 * 60_000 // 256, "delta": 1e-5}
NUMBERS = 26_010  # of a small convolutional network


def test_each_is_the_epsilon_of_its_own_noise_multiplier():
    found = tanh_filter_statements(**PAPER, numbers=NUMBERS, c=0.5, bound=2.0)
    multipliers = {"claimed": 1.1, "actual": 1.1 / (0.5 * math.sqrt(NUMBERS)), "sound": 1.1 / 2.0}
    for name, multiplier in multipliers.items():
        event = dpsgd_event(PAPER["sampling_rate"], multiplier, PAPER["steps"])
        accountant = "rdp" if name == "claimed" else "pld"
        assert getattr(found, name).epsilon == epsilon(event, 1e-5, accountant=accountant)


def test_the_papers_setting_is_worth_next_to_nothing():
    """A record is drawn some 15 times, and each time nearly shown: one such step alone has 1 / (2 multiplier²)."""
    found = tanh_filter_statements(**PAPER, numbers=NUMBERS)
    once = NUMBERS / (2 * 1.1**2)
    assert found.claimed.epsilon < 2
    assert found.actual.epsilon > 15 * once
    assert found.sound.epsilon <= found.claimed.epsilon  # by PLD, and now it is true


def test_the_claim_says_that_it_is_none():
    found = tanh_filter_statements(**PAPER, numbers=10_000, c=2.0)
    assert "taken for 1 and is 200" in str(found.claimed)
    assert found.actual.caveats == found.sound.caveats == ()


@pytest.mark.parametrize("numbers", [10**6, 10**10, 10**14])
def test_astronomical_epsilons_are_finite_or_infinite_and_never_small(numbers):
    actual = tanh_filter_statements(**PAPER, numbers=numbers).actual
    assert actual.epsilon > numbers
    assert "nan" not in str(actual).lower()


def test_more_numbers_and_a_wider_range_cost_more():
    few, many, wide = (
        tanh_filter_statements(**PAPER, numbers=numbers, c=c).actual.epsilon
        for numbers, c in ((1_000, 1.0), (4_000, 1.0), (1_000, 2.0))
    )
    assert few < many
    assert many == pytest.approx(wide, rel=1e-6)  # c sqrt(n) is the same


@pytest.mark.parametrize("bad", [{"numbers": 0}, {"c": 0.0}, {"bound": -1.0}, {"noise_std": math.nan}], ids=str)
def test_what_is_out_of_range_is_refused_by_name(bad):
    with pytest.raises(InputError, match=f"{next(iter(bad))}="):
        tanh_filter_statements(**{**PAPER, "numbers": 10, **bad})
