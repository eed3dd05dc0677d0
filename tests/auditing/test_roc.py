"""ROC curves, their intervals, and the ceilings that guarantees put on them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tacit.accounting import delta as delta_at
from tacit.accounting import dpsgd_event
from tacit.auditing.ceilings import Ceiling, ceiling
from tacit.auditing.intervals import clopper_pearson, wilson
from tacit.auditing.roc import Roc
from tacit.core.errors import InputError

SCORES = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=40)


def _slow_tpr(members: list[float], others: list[float], fpr: float) -> float:
    """The best true positive rate over all thresholds that keep to the false positive rate."""
    rates = [0.0]
    for threshold in [-math.inf, *members, *others]:
        if np.mean([score > threshold for score in others]) <= fpr + 1e-12:
            rates.append(float(np.mean([score > threshold for score in members])))
    return max(rates)


@given(SCORES, SCORES, st.sampled_from([0.01, 0.07, 0.1, 0.29, 0.5, 0.9]))
def test_the_true_positive_rate_is_the_best_over_all_thresholds(members, others, fpr):
    roc = Roc(np.asarray(members), np.asarray(others))
    point = roc.tpr_at(fpr)
    assert point.tpr.value == pytest.approx(_slow_tpr(members, others, fpr))
    assert point.fpr.value <= fpr
    assert point.enough == (fpr * len(others) >= 1 - 1e-9)
    assert roc.tprs([fpr])[0] == pytest.approx(point.tpr.value)


@given(SCORES, SCORES)
def test_the_area_is_the_chance_that_a_member_scores_higher(members, others):
    roc = Roc(np.asarray(members), np.asarray(others))
    wins = np.mean([[(m > o) + 0.5 * (m == o) for o in others] for m in members])
    area = roc.auc()
    assert area.value == pytest.approx(wins)
    assert 0 <= area.low <= area.value <= area.high <= 1
    assert area.low < area.high


def test_curves_end_where_everyone_is_called_a_member():
    roc = Roc(np.asarray([0.0, 1.0]), np.asarray([2.0, 3.0]))
    assert roc.tprs([0.0, 0.5, 1.0]).tolist() == [0.0, 0.0, 1.0]


def test_scores_may_be_split_by_membership_and_may_be_infinite():
    scores = np.asarray([[np.inf, 1.0], [-np.inf, 0.0]])
    roc = Roc.of(scores, np.asarray([[True, True], [False, False]]))
    assert roc.auc().value == 1
    assert roc.tpr_at(0.01).tpr.value == 1


def test_too_few_non_members_for_a_rate_are_named():
    roc = Roc(np.linspace(0, 1, 50), np.linspace(0, 1, 999))
    assert roc.tpr_at(0.01).enough
    assert not roc.tpr_at(0.001).enough
    point = roc.tpr_at(0.001)
    assert point.fpr.value == 0
    assert point.fpr.high > 0.001  # so few of them do not show that the rate is kept
    assert Roc(np.zeros(1), np.linspace(0, 1, 1000)).tpr_at(0.001).enough
    assert point.to_dict()["enough_non_members"] is False


def test_the_threshold_holds_its_rate_on_new_non_members():
    """The interval of the false positive rate covers the true one at the threshold, which the non-members chose."""
    stream = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        point = Roc(np.zeros(1), stream.standard_normal(2000)).tpr_at(0.01)
        covered += point.fpr.low <= stats.norm.sf(point.threshold) <= point.fpr.high
    assert 368 <= covered <= 400  # at least 95 % less four deviations, seeded


@pytest.mark.parametrize("share", [0.001, 0.3, 0.97])
def test_clopper_pearson_is_scipys_and_covers(share):
    for successes in (0, 1, 17, 40):
        expected = stats.binomtest(successes, 40).proportion_ci(0.9, method="exact")
        found = clopper_pearson(successes, 40, confidence=0.9)
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    counts = np.arange(201)
    intervals = [clopper_pearson(int(count), 200) for count in counts]
    covering = [interval.low <= share <= interval.high for interval in intervals]
    assert stats.binom.pmf(counts, 200, share)[covering].sum() >= 0.95


def test_wilson_is_scipys():
    for successes in (0, 3, 20):
        expected = stats.binomtest(successes, 20).proportion_ci(0.95, method="wilson")
        found = wilson(successes / 20, 20)
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize("shift", [0.0, 1.0, 3.0])
def test_the_interval_of_the_area_covers_the_true_area(shift):
    stream = np.random.default_rng(0)
    truth = stats.norm.cdf(shift / math.sqrt(2))
    covered = 0
    for _ in range(300):
        area = Roc(stream.standard_normal(150) + shift, stream.standard_normal(60)).auc()
        covered += area.low <= truth <= area.high
    assert covered >= 270


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Roc(np.zeros(0), np.zeros(3)), "members of shape"),
        (lambda: Roc(np.zeros(3), np.asarray([np.nan, 1.0])), "non_members: 1 scores are not numbers"),
        (lambda: Roc(np.zeros(3), np.zeros((2, 2))), "non_members of shape"),
        (lambda: Roc.of([1.0, 2.0], [1, 0]), "must be booleans"),
        (lambda: Roc(np.zeros(3), np.zeros(3)).tpr_at(0.0), "fpr=0.0"),
        (lambda: clopper_pearson(3, 2), "successes=3"),
        (lambda: clopper_pearson(1, 2, confidence=1.0), "confidence=1.0"),
        (lambda: Ceiling(()).at(1.5), "must lie between 0 and 1"),
        (lambda: ceiling(0.1, -1.0, 0.0), "epsilon=-1.0"),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_a_claim_bounds_both_directions():
    assert ceiling(0.001, 1.0, 1e-5) == pytest.approx(math.e * 0.001 + 1e-5)
    assert ceiling(0.9, 1.0, 1e-5) == pytest.approx(1 - (0.1 - 1e-5) / math.e)
    assert ceiling(0.25, 0.0, 0.0) == 0.25
    assert ceiling(0.25, math.inf, 0.0) == 1.0
    assert ceiling(0.5, 50.0, 0.0) <= 1.0
    assert ceiling(0.0, 1000.0, 1e-5) == 1e-5  # e to the 1000 is no float
    assert ceiling(0.5, 1000.0, 1e-5) == 1.0


def test_randomised_response_reaches_its_ceiling():
    epsilon = 1.3
    fpr = 1 / (1 + math.exp(epsilon))
    assert ceiling(fpr, epsilon, 0.0) == pytest.approx(1 - fpr)


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0])
def test_the_curve_of_the_gaussian_mechanism_is_its_tradeoff_function(noise):
    r"""The best test of one Gaussian release has :math:`TPR = \Phi(\Phi^{-1}(FPR) + 1 / \sigma)`."""
    fprs = np.asarray([1e-4, 1e-3, 1e-2, 0.1, 0.5, 0.9])
    truth = stats.norm.cdf(stats.norm.ppf(fprs) + 1 / noise)
    found = Ceiling.of_event(dpsgd_event(sampling_rate=1.0, noise_multiplier=noise, steps=1)).at(fprs)
    assert (found >= truth * (1 - 1e-6)).all()
    assert (found <= truth * 1.02).all()


def test_a_curve_allows_no_more_than_each_of_its_claims():
    event = dpsgd_event(sampling_rate=0.05, noise_multiplier=1.0, steps=100)
    fprs = np.geomspace(1e-4, 1, 30)
    whole = Ceiling.of_event(event)
    claim = Ceiling.of_claim(2.0, delta_at(event, 2.0))
    assert (whole.at(fprs) <= claim.at(fprs)).all()
    assert (whole.at(fprs) >= fprs).all()
    assert whole.at(1e-4) < 0.8 * claim.at(1e-4)
    assert whole.at(0.5).shape == ()


def test_no_test_of_a_noisy_count_beats_its_ceiling():
    """A real attack on a real mechanism: the record is counted or not, with noise; and half the noise is noticed."""
    stream = np.random.default_rng(0)
    allowed = Ceiling.of_event(dpsgd_event(sampling_rate=1.0, noise_multiplier=1.0, steps=1)).at(0.01)
    found = {}
    for noise in (1.0, 0.5):
        roc = Roc(1 + noise * stream.standard_normal(100_000), noise * stream.standard_normal(100_000))
        found[noise] = roc.tpr_at(0.01)
    assert found[1.0].tpr.high < 1.1 * allowed
    assert found[0.5].tpr.low > 2 * allowed
