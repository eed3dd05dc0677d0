"""A private sweep: what it costs, who sees which record, what is drawn, and what is charged when."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.accounting import RenyiAccountant
from tacit.accounting.renyi import ORDERS
from tacit.accounting.selection import TruncatedNegativeBinomial
from tacit.accounting.worst_of import WorstOfDpEvent
from tacit.core import BudgetExceededError, InputError, Neighbours
from tacit.core.privacy import Budget
from tacit.core.randomness import Randomness
from tacit.datasets import Split, load
from tacit.ledger import Ledger
from tacit.mechanisms import DiscreteGaussian
from tacit.recipes import Conditions, Selection, private_sweep, read_axes, run_private_sweep
from tacit.recipes.measuring import Trained
from tacit.recipes.named_set import recipe_for
from tacit.recipes.private_sweep import select, split_for_scoring
from tacit.recipes.selection_plan import SelectionPlan, plan_selection
from tacit.training import RunFolder

BUDGET = Budget(2.0, 1e-5)
TRIALS = TruncatedNegativeBinomial.with_mean(3, 0)
EXAMPLES = 1000


@pytest.fixture(scope="module")
def subject():
    return recipe_for("digits")


def configurations(subject, **values):
    (key, listed) = next(iter(values.items()))
    return [subject.configured({"steps": "20", key: value}) for value in listed]


def test_row_numbers_alone_decide_who_trains_and_who_scores(subject):
    data = load("digits")
    numbered = Split(torch.arange(len(data.train)), data.train.targets)
    shared = split_for_scoring(dataclasses.replace(data, train=numbered))
    train, scored = set(shared.train.inputs.tolist()), set(shared.test.inputs.tolist())
    assert train | scored == set(range(len(data.train)))
    assert not train & scored
    assert 0.15 < len(scored) / len(data.train) < 0.25
    # A neighbour with one record less at the end has it in neither part, and all others where they were.
    fewer = split_for_scoring(dataclasses.replace(data, train=Split(*numbered[: len(numbered) - 1])))
    gone = {len(numbered) - 1}
    assert set(fewer.train.inputs.tolist()) == train - gone
    assert set(fewer.test.inputs.tolist()) == scored - gone


@pytest.mark.parametrize("values", [{"learning_rate": ["0.1", "0.5"]}, {"batch_size": ["64", "256", "1000"]}], ids=str)
def test_noise_is_the_least_that_keeps_to_the_budget(subject, values):
    plan = plan_selection(configurations(subject, **values), EXAMPLES, BUDGET, TRIALS)
    assert 0.995 * BUDGET.epsilon < plan.epsilon() <= BUDGET.epsilon
    less = tuple(dataclasses.replace(one, noise_multiplier=0.995 * one.noise_multiplier) for one in plan.plans)
    assert dataclasses.replace(plan, plans=less).epsilon() > BUDGET.epsilon
    for one in plan.plans:  # a single model of this noise is far cheaper than the budget: the choice costs the rest
        assert one.epsilon() < 0.9 * BUDGET.epsilon


def test_the_score_is_as_exact_as_it_can_be_for_nothing(subject):
    plan = plan_selection(configurations(subject, batch_size=["64", "512"]), EXAMPLES, BUDGET, TRIALS)

    def divergences(event):
        return RenyiAccountant().divergences(event, Neighbours.ADD_REMOVE)

    training = divergences(WorstOfDpEvent([one.event() for one in plan.plans]))
    assert np.all(divergences(plan.score.event()) <= training)
    exacter = DiscreteGaussian(0.999 * float(plan.score.scale), 1)
    assert np.any(divergences(exacter.event()) > training)
    np.testing.assert_array_less(0, training / ORDERS)
    # A score without its noise would not be covered.
    assert dataclasses.replace(plan, score=DiscreteGaussian(0.2, 1)).epsilon() > BUDGET.epsilon


def test_statement_names_the_selection_and_what_it_does_not_cover(subject):
    plan = plan_selection(configurations(subject, clip=["0.5", "1"]), EXAMPLES, BUDGET, TRIALS)
    sentence = str(plan.statement(1))
    for part in ("private selection among 2 settings", "logarithmic with mean 3", "keep these secret", "norm 1", "rdp"):
        assert part in sentence


def toy_plan(scale):
    return SelectionPlan((None, None, None), DiscreteGaussian(scale, 1), TRIALS, BUDGET)


RIGHT = (40, 42, 43)


def chances_of_winning(scale, trials):
    """By the distribution of the best of K among all (score, candidate), ties shared as equal trials share them."""
    span = np.arange(0, 90)
    weights = np.array([np.exp(-((span - right) ** 2) / (2 * scale**2)) for right in RIGHT])
    weights /= weights.sum(axis=1, keepdims=True) * len(RIGHT)
    at = weights.sum(axis=0)
    up_to = np.cumsum(at)

    def generating(x):
        return np.log1p(-(1 - trials.gamma) * x) / math.log(trials.gamma)

    best = generating(up_to) - generating(np.maximum(up_to - at, 0))
    return (weights / at * best).sum(axis=1)


def test_select_returns_the_best_of_a_random_number_of_trials(monkeypatch):
    scale, draws = 2.0, 2500
    monkeypatch.setattr(private_sweep, "train_model", lambda number, *_: Trained(number, torch.nn.Sequential(), [], ""))
    monkeypatch.setattr(private_sweep, "evaluate", lambda number, split, task: RIGHT[number] / len(split))
    data = split_for_scoring(load("digits"))
    winners = [
        select((0, 1, 2), data, toy_plan(scale), Conditions(), Randomness(unsafe_seed=draw)).candidate
        for draw in range(draws)
    ]
    seen = np.bincount(winners, minlength=3)
    assert stats.chisquare(seen, draws * chances_of_winning(scale, TRIALS)).pvalue > 1e-3
    for wrong in (1.5, 9):
        other = TruncatedNegativeBinomial.with_mean(wrong, 0)
        assert stats.chisquare(seen, draws * chances_of_winning(scale, other)).pvalue < 1e-3


def swept(subject, account, folder, **changes):
    terms = {"over": ["learning_rate=0.1,0.5"], "settings": {"steps": "5"}, "conditions": Conditions(account=account)}
    terms |= changes
    axes = read_axes(terms["over"])
    return run_private_sweep(
        subject, axes, terms["settings"], Selection(BUDGET, TRIALS), terms["conditions"], RunFolder.create(folder, "x")
    )


@pytest.fixture
def account(tmp_path):
    return Ledger.create(tmp_path / "ledger.db", dataset="digits", budget=BUDGET).account("digits")


def test_everything_is_charged_before_the_first_trial(subject, account, tmp_path, monkeypatch):
    def first_trial(*_):
        (entry,) = account.entries()
        assert entry.state.value == "committed"
        assert 0.995 * BUDGET.epsilon < account.spent() <= BUDGET.epsilon
        raise KeyboardInterrupt

    monkeypatch.setattr(private_sweep, "train_model", first_trial)
    with pytest.raises(KeyboardInterrupt):
        swept(subject, account, tmp_path / "run")
    assert account.spent() > 0.995 * BUDGET.epsilon
    assert not (tmp_path / "run").exists()
    with pytest.raises(BudgetExceededError):
        swept(subject, account, tmp_path / "run")
    assert len(account.entries()) == 1
    assert not (tmp_path / "run").exists()


class Start:
    """A public start that notes what was spent when it was made, or cannot be made."""

    def __init__(self, account, fails=False):
        self.account, self.fails, self.spent = account, fails, []

    def make(self, device, report):
        self.spent.append(self.account.spent())
        if self.fails:
            raise InputError("start: cannot be made.")

    def record(self):
        return {"weights_sha256": "0"}

    def settings(self):
        return None


def from_start(subject, start):
    return dataclasses.replace(
        subject, configure=lambda knobs: dataclasses.replace(subject.configure(knobs), start=start)
    )


def test_public_starts_are_made_before_anything_is_charged(subject, account, tmp_path):
    with pytest.raises(InputError, match="cannot be made"):
        swept(from_start(subject, Start(account, fails=True)), account, tmp_path / "run")
    assert not account.entries()
    start = Start(account)
    result = swept(from_start(subject, start), account, tmp_path / "run")
    assert start.spent == [0.0, 0.0]
    assert result["public_start"] == {"weights_sha256": "0"}


def test_the_trials_of_a_selection_are_not_charged_again(subject, account, tmp_path):
    result = swept(subject, account, tmp_path / "run")
    assert len(account.entries()) == 1
    assert result["epsilon"] == pytest.approx(account.spent())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"over": ["epsilon=1,2"]}, "epsilon: is found from"),
        ({"over": ["noise=1,2"]}, "noise: is found from"),
        ({"settings": {"delta": "1e-6"}}, "delta: is found from"),
        ({"conditions": Conditions(seeds=2)}, "seeds=2"),
        ({"conditions": Conditions(held_out=True)}, "held_out=True"),
    ],
)
def test_bad_input_is_named_and_leaves_nothing(subject, tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        swept(subject, None, tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()
