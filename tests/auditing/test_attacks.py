"""Attacks on confidences: against slow twins, against planted leaks, and against models that never saw the data."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from tacit.auditing.attacks import (
    ATTACKS,
    Observations,
    attack_each,
    calibrated_loss,
    confidences,
    lira,
    loss_threshold,
    losses,
    model_confidences,
)
from tacit.core.errors import InputError

MODELS, RECORDS = 17, 3000


def planted(leak: float, *, queries: int = 1, seed: int = 0) -> Observations:
    """Confidences of models that remember: members gain ``leak`` deviations; records differ in how hard they are."""
    stream = np.random.default_rng(seed)
    member = stream.integers(0, 2, (MODELS, RECORDS)).astype(bool)
    hardness = 3 * stream.standard_normal(RECORDS)
    noise = stream.standard_normal((MODELS, queries, RECORDS))
    return Observations(hardness + leak * member[:, None] + noise, member)


def test_confidences_are_the_logits_of_the_probability():
    outputs = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0, 1, 2, 3, 0])
    chance = outputs.double().softmax(-1)[:, torch.arange(5), targets].numpy()
    found = confidences(outputs, targets)
    assert found == pytest.approx(np.log(chance / (1 - chance)))
    assert losses(found) == pytest.approx(-np.log(chance))
    assert loss_threshold(found) == pytest.approx(np.log(chance))


def test_confidences_stay_finite_where_probabilities_round_to_one():
    outputs = torch.tensor([[200.0, 0.0], [-200.0, 0.0], [math.nan, 0.0], [math.inf, 0.0]])
    assert confidences(outputs, torch.zeros(4, dtype=torch.int64)).tolist() == [200.0, -200.0, 0.0, 0.0]


def test_a_model_is_asked_in_evaluation_mode_and_left_as_it_was():
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 3))
    inputs, targets = torch.randn(2500, 4), torch.randint(0, 3, (2500,))
    with torch.no_grad():
        expected = confidences(model[1](inputs), targets)
    assert model_confidences(model, inputs, targets) == pytest.approx(expected, abs=1e-5)
    assert model.training


@pytest.mark.parametrize("online", [True, False])
@pytest.mark.parametrize("variance", ["fixed", "per-example"])
@pytest.mark.parametrize("queries", [1, 2])
def test_lira_equals_its_definition(online, variance, queries):
    seen = planted(1.0, queries=queries)
    shadows = seen.without(0)
    found = lira(seen.confidence[0], shadows, online=online, variance=variance)
    fixed = {}
    for inside in (True, False):
        groups = [
            [shadows.confidence[shadows.member[:, i] == inside, q, i] for i in range(RECORDS)] for q in range(queries)
        ]
        fixed[inside] = [sum(((g - g.mean()) ** 2).sum() for g in of) / sum(len(g) - 1 for g in of) for of in groups]
    for record in range(0, RECORDS, 300):
        score = 0.0
        for query in range(queries):
            parts = {}
            for inside in (True, False):
                own = shadows.confidence[shadows.member[:, record] == inside, query, record]
                spread = math.sqrt(fixed[inside][query]) if variance == "fixed" else own.std(ddof=1)
                parts[inside] = (own.mean(), spread)
            said = seen.confidence[0, query, record]
            out_mean, out_spread = parts[False]
            if online:
                score += stats.norm.logpdf(said, *parts[True]) - stats.norm.logpdf(said, out_mean, out_spread)
            else:
                score += (said - out_mean) / out_spread
        assert found[record] == pytest.approx(score)


def test_offline_scores_order_records_as_the_one_sided_test():
    seen = planted(1.0)
    shadows = seen.without(0)
    scores = lira(seen.confidence[0], shadows, online=False)
    outside = shadows.spread(inside=False)
    chance = stats.norm.cdf(seen.confidence[0, 0], outside.mean[0], np.sqrt(outside.fixed_variance()[0, 0]))
    assert (np.argsort(chance, kind="stable") == np.argsort(stats.norm.cdf(scores), kind="stable")).all()


def test_the_calibrated_loss_compares_with_models_that_never_saw_the_record():
    confidence = np.asarray([[0.0, 5.0], [1.0, 1.0], [9.0, 2.0]])
    member = np.asarray([[False, True], [False, True], [True, True]])
    shadows = Observations(confidence, member)
    target = np.asarray([2.0, 3.0])
    expected = [losses([0.0, 1.0]).mean() - losses(2.0), losses([5.0, 1.0, 2.0]).mean() - losses(3.0)]
    assert calibrated_loss(target, shadows) == pytest.approx(expected)
    assert not shadows.member[0, 0]  # nothing was changed


def test_records_with_no_model_of_a_kind_are_given_the_mean_shift():
    seen = planted(2.0)
    member = seen.member.copy()
    member[:, 0], member[:, 1] = True, False
    shadows = Observations(seen.confidence, member)
    for variance in ("fixed", "per-example"):
        for online in (True, False):
            assert np.isfinite(lira(seen.confidence[0], shadows, online=online, variance=variance)).all()
    high = seen.confidence[0].copy()
    high[:, :2] += 10.0
    assert (lira(high, shadows)[:2] > lira(seen.confidence[0], shadows)[:2]).all()


@pytest.mark.parametrize("name", sorted(set(ATTACKS) - {"loss"}))
def test_a_planted_leak_is_found(name):
    """Six deviations: the loss alone hides them behind how hard records are, shadow models show them."""
    roc = attack_each(planted(6.0), ATTACKS[name])
    assert roc.tpr_at(0.01).tpr.low > 0.3
    assert roc.auc().low > 0.8


def test_shadow_models_beat_the_loss_alone():
    found = {name: attack_each(planted(2.0), attack).tpr_at(0.01).tpr.value for name, attack in ATTACKS.items()}
    assert found["lira-online-fixed"] > 5 * found["loss"]
    assert found["lira-online-fixed"] > found["lira-online"]  # eight models hardly know a variance of their own


def test_the_fixed_ratio_is_nearly_the_best_test():
    """The best attack knows the distributions: the rate of a test between N(0, 1) and N(2, 1)."""
    best = stats.norm.sf(stats.norm.isf(0.01) - 2.0)
    found = attack_each(planted(2.0), ATTACKS["lira-online-fixed"]).tpr_at(0.01).tpr
    assert 0.75 * best < found.value < 1.05 * best


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_models_that_never_saw_the_data_are_not_accused(name):
    """Seeded; of six attacks with three figures each, none may leave the interval that chance leaves by far."""
    roc = attack_each(planted(0.0, seed=3), ATTACKS[name])
    area = roc.auc(confidence=0.9999)
    assert area.low <= 0.5 <= area.high
    for fpr in (0.01, 0.001):
        assert roc.tpr_at(fpr, confidence=0.9999).tpr.low <= fpr


def test_shadows_of_ones_own_may_be_given():
    targets, shadows = planted(3.0, seed=1), planted(3.0, seed=1)
    fresh = Observations(shadows.confidence[8:], shadows.member[8:])
    one = Observations(targets.confidence[:1], targets.member[:1])
    assert attack_each(one, ATTACKS["lira-online-fixed"], shadows=fresh).auc().low > 0.9
    with pytest.raises(InputError, match="Give shadows"):
        attack_each(one, ATTACKS["loss"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Observations(np.zeros((2, 3)), np.zeros((2, 3))), "member of shape"),
        (lambda: Observations(np.zeros((2, 3)), np.zeros((3, 2), dtype=bool)), "member of shape"),
        (lambda: Observations(np.full((2, 3), np.nan), np.zeros((2, 3), dtype=bool)), "not finite"),
        (lambda: lira(np.zeros(3), Observations(np.zeros((1, 3)), np.zeros((1, 3), dtype=bool))), "shadows=1 at most"),
        (lambda: lira(np.zeros(3000), planted(1.0), variance="none"), "variance='none'"),
        (lambda: confidences(torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64)), "at least two classes"),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
