"""Canaries under released models: what is shown about a leak, and that nothing is shown where nothing leaks."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from tacit.auditing.attacks import losses
from tacit.auditing.black_box import (
    CanaryEvidence,
    audit_canaries,
    error_confidences,
    record_confidences,
    record_scores,
)
from tacit.auditing.canaries import plant
from tacit.auditing.experiment import AuditExperiment, AuditSettings, unlike_the_others
from tacit.auditing.findings import Attack, Claim, Finding
from tacit.auditing.lower_bounds import one_run_bound
from tacit.auditing.roc import Roc
from tacit.core.errors import InputError
from tacit.core.randomness import Randomness
from tacit.datasets import DataSet, Split

DELTA = 1e-6


def data(examples=400, classes=3, width=8, seed=0):
    stream = torch.Generator().manual_seed(seed)
    inputs = torch.randn(examples, width, generator=stream)
    targets = inputs[:, :classes].argmax(1)
    half = examples // 2
    return DataSet(
        "made", Split(inputs[:half], targets[:half]), Split(inputs[half:], targets[half:]), classes, (width,), "here"
    )


class Memory(nn.Module):
    """Knows the records of a split by heart, and guesses about all others."""

    def __init__(self, split, classes):
        super().__init__()
        self.known = dict(zip((row.numpy().tobytes() for row in split.inputs), split.targets.tolist(), strict=True))
        self.classes = classes
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, inputs):
        outputs = torch.zeros(len(inputs), self.classes)
        for row, given in zip(outputs, inputs, strict=True):
            if (label := self.known.get(given.numpy().tobytes())) is not None:
                row[label] = 5.0
        return outputs


@pytest.mark.parametrize("kind", ["adversarial", "mislabelled"])
def test_a_model_that_remembers_everything_is_shown_to_leak_all_that_the_test_can_show(kind):
    planted, planting = plant(data(), 100, kind, Randomness(unsafe_seed=2))
    found = audit_canaries(Memory(planted.train, 3), planting, delta=DELTA)
    assert found.roc.auc().value == 1.0
    assert 2.4 < found.bound.epsilon <= found.bound.largest  # all right, but for coins that are not half and half
    assert found.facts() == {"kind": kind, "count": 100, "coins": 100}


def test_a_model_that_never_saw_them_shows_nothing():
    """In 40 plantings, of which at most 5 % may show anything; the seeds are fixed."""
    shown = 0
    for seed in range(40):
        planting = plant(data(), 60, "adversarial", Randomness(unsafe_seed=seed))[1]
        torch.manual_seed(seed)
        shown += audit_canaries(nn.Linear(8, 3), planting, delta=DELTA).bound.epsilon > 0
    assert shown <= 5


def test_coins_that_fell_alike_are_refused():
    planting = plant(data(), 20, "blank", Randomness(unsafe_seed=0))[1]
    for coins in (torch.ones_like(planting.included), torch.zeros_like(planting.included)):
        with pytest.raises(InputError, match=r"canaries=20: all of them were trained on, or none.*more canaries"):
            audit_canaries(nn.Linear(8, 3), dataclasses.replace(planting, included=coins), delta=DELTA)


def randomised_responses(models, canaries, epsilon, seed):
    """What models of a mechanism that is epsilon-private for every coin say, and the coins."""
    stream = np.random.default_rng(seed)
    coins = stream.random((models, canaries)) < 0.5
    told = coins ^ (stream.random(coins.shape) > 1 / (1 + math.exp(-epsilon)))
    return told + 50.0 * stream.standard_normal(canaries), coins  # canaries are not equally hard


def test_coins_of_many_models_are_counted_together_without_ever_claiming_too_much():
    """Randomised response is exactly epsilon-private: 120 audits at 95 %, and a test that notices half the epsilon."""
    bounds = []
    for seed in range(120):
        said, coins = randomised_responses(16, 25, 1.0, seed)
        bounds.append(one_run_bound(unlike_the_others(said).ravel(), coins.ravel(), delta=1e-9).epsilon)
    accused = sum(bound > 1.0 for bound in bounds)
    assert stats.binom.sf(accused - 1, 120, 0.05) > 1e-4
    assert sum(bound > 0.5 for bound in bounds) > 60  # a claim of half the epsilon is mostly refuted


def test_what_all_models_say_alike_is_taken_out_of_the_scores():
    said, coins = randomised_responses(16, 25, 3.0, seed=0)
    assert one_run_bound(said.ravel(), coins.ravel(), delta=1e-9).epsilon == 0
    assert one_run_bound(unlike_the_others(said).ravel(), coins.ravel(), delta=1e-9).epsilon > 1.5


def test_scores_of_a_regression_are_minus_its_errors():
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.fill_(1.0)
        model.bias.zero_()
    inputs = torch.tensor([[1.0, 2.0], [0.0, 1.0], [math.inf, -math.inf]])
    scores = record_scores(model, inputs, torch.tensor([3.0, -1.0, 0.0]))
    assert scores.tolist() == [0.0, -4.0, -math.inf]
    odds = record_confidences(model, inputs, torch.tensor([3.0, -1.0, 0.0]))
    assert odds[0] > odds[1] > odds[2]
    assert np.isfinite(odds).all()


def test_the_loss_of_a_regressions_odds_is_its_squared_error():
    errors = np.array([1e-9, 1e-3, 0.2, 1.0, 4.0, 50.0])
    assert losses(error_confidences(errors)) == pytest.approx(errors, rel=1e-9)
    assert np.isfinite(error_confidences(np.array([0.0, math.inf, math.nan]))).all()


def finding(claim, scores, coins):
    planting = plant(data(), len(scores), "blank", Randomness(unsafe_seed=0))[1]
    evidence = CanaryEvidence.of(planting, scores, coins, delta=claim.delta, confidence=0.95)
    attacks = [Attack("guess", Roc.of(scores, coins))]
    return Finding("made", claim, 0.95, evidence, attacks, by_coins=True, paid_for=True)


def test_a_claim_is_refuted_only_by_a_bound_above_it():
    coins = np.arange(100) % 2 == 0
    scores = coins.astype(float)
    lower = finding(Claim(math.inf, 1e-5), scores, coins).canaries.bound.epsilon
    assert finding(Claim(lower - 1e-6, 1e-5), scores, coins).refuted
    assert not finding(Claim(lower, 1e-5), scores, coins).refuted
    assert not finding(Claim(math.inf, 1e-5), scores, coins).refuted
    assert finding(Claim(math.inf, 1e-5), scores, coins).to_dict()["epsilon_claimed"] is None
    assert Claim.of_statement(None, 1e-5).epsilon == math.inf
    with pytest.raises(InputError, match="delta"):
        Claim.of_statement(1.0, None)


def test_curves_begin_where_the_non_members_can_tell_and_shares_add_up():
    stream = np.random.default_rng(0)
    drawn = finding(Claim(1.0, 1e-5), stream.standard_normal(100), stream.random(100) < 0.5).drawn()
    curve = np.array(drawn["attack_scores"][0]["tpr"])
    assert np.array_equal(curve, drawn["canary_scores"]["tpr"], equal_nan=True)
    outside = 100 - int(np.round(100 * 0.5))
    assert np.isnan(curve[np.array(drawn["fpr"]) < 0.5 / outside]).all()
    assert curve[-1] == 1.0
    assert np.diff(curve[~np.isnan(curve)]).min() >= 0
    for histogram in (drawn["canary_scores"]["histogram"], drawn["attack_scores"][0]["histogram"]):
        assert sum(histogram["members"]) == pytest.approx(1)
        assert sum(histogram["non_members"]) == pytest.approx(1)
    assert drawn["ceiling"][0] == pytest.approx(math.e * 1e-4 + 1e-5, rel=1e-6)


@pytest.fixture(scope="module")
def outcome():
    """A small experiment: four shadow models of each kind."""
    before = data(600, width=40, seed=3)
    asked = AuditSettings.for_data(
        before, epsilon=1.0, delta=1e-5, model="mlp", steps=20, canaries=60, shadows=4, plain_epochs=200
    )
    experiment = AuditExperiment.prepare(before, asked, Randomness(unsafe_seed=1), torch.device("cpu"))
    told = []
    return experiment, experiment.run(lambda doing, share: told.append((doing, share))), told


def test_plain_models_are_shown_to_leak_and_private_ones_keep_their_claim(outcome):
    _, result, _ = outcome
    assert result.plain.canaries.bound.epsilon > 1  # who claimed epsilon 1 for them would be refuted
    assert result.private.canaries.bound.epsilon <= 1
    assert not result.private.refuted
    assert result.plain.canaries.roc.auc().value > 0.75
    assert result.plain.attacks[0].roc.auc().value > result.private.attacks[0].roc.auc().value
    assert 0.8 < result.white_box.epsilon <= 1.0
    assert result.private.attacks[0].name == "lira-online-fixed"
    assert len(result.private.attacks) == 6


def test_a_claim_that_is_tested_twice_is_refuted_by_either_test(outcome):
    """Each has half of the chance to be wrong, so that a true claim is accused as rarely as the settings say."""
    result = outcome[1]
    assert result.white_box.confidence == pytest.approx(0.975)
    assert result.private.canaries.bound.confidence == pytest.approx(0.975)
    assert not result.to_dict()["refuted"]
    assert result.to_dict()["confidence"] == 0.95
    seen = dataclasses.replace(result.white_box, epsilon=1.001)
    values = dataclasses.replace(result, white_box=seen).to_dict()
    assert values["refuted"]
    assert values["white_box"]["refuted"]
    leaky = dataclasses.replace(result.plain, claim=result.private.claim)
    values = dataclasses.replace(result, private=leaky).to_dict()
    assert values["refuted"]
    assert not values["white_box"]["refuted"]


def test_the_experiment_is_planned_by_public_numbers(outcome):
    experiment, result, told = outcome
    assert experiment.plan.examples == 150
    assert experiment.plan.epsilon() <= 1.0
    assert len(result.private.canaries.included) == 5 * 60
    assert len(result.private.attacks[0].roc.members) + len(result.private.attacks[0].roc.non_members) == 5 * 240
    assert {doing for doing, share in told if share == 1.0} == {"private models", "plain models", "attacks"}


def test_what_may_not_be_published_of_an_experiment_is_named(outcome):
    values = outcome[1].to_dict()
    assert set(values["private"]) >= {"epsilon_lower", "auc", "tpr_at_fpr", "plain", "test_accuracy"}
    assert "white_box" not in values["private"]
    assert values["by_coins"]
    assert all("ceiling" in point for attack in values["attacks"] for point in attack["tpr_at_fpr"])
    assert set(values["private"]) <= values.keys()


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"epsilon": math.inf}, ("epsilon=inf", "finite")),
        ({"epsilon": 0.0}, ("epsilon=0", "above 0")),
        ({"shadows": 3}, ("shadows=3", "at least 4")),
        ({"confidence": 1.0}, ("confidence=1", "0.95")),
        ({"plain_epochs": 0}, ("plain_epochs=0",)),
        ({"canaries": 9}, ("canaries=9", "at least 10")),
        ({"canaries": 101}, ("canaries=101", "half of the 200")),
        ({"model": "llm"}, ("model='llm'",)),
        ({"delta": 0.0}, ("delta=0",)),
    ],
)
def test_refusals(changes, parts):
    def prepare():
        asked = AuditSettings.for_data(data(), **{"epsilon": 1.0, "delta": 1e-5, "steps": 2, **changes})
        return AuditExperiment.prepare(data(), asked, Randomness(), torch.device("cpu"))

    with pytest.raises(InputError) as refused:
        prepare()
    assert all(part in str(refused.value) for part in parts), refused.value


def test_a_regression_is_refused():
    made = dataclasses.replace(data(), task="regression", classes=1)
    with pytest.raises(InputError, match="regression"):
        AuditExperiment.prepare(made, AuditSettings.for_data(data()), Randomness(), torch.device("cpu"))
