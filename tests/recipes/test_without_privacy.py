"""Baselines without privacy: ordinary training, said to be without a guarantee wherever it is shown."""

import dataclasses
import json

import pytest
import torch
import torch.nn.functional as F
from small_recipe import MODERATE, small_configuration, small_recipe
from torch import nn

from tacit.core.errors import InputError
from tacit.core.plain import to_json
from tacit.core.privacy import Budget
from tacit.datasets import Split, load
from tacit.ledger import Ledger
from tacit.recipes import RECIPES, Conditions, Published, run_recipe
from tacit.recipes.guarantee import NO_GUARANTEE
from tacit.recipes.plain import prepare_plainly, train_plainly
from tacit.recipes.recipe import Configuration
from tacit.recipes.sweeping import read_axes, run_sweep
from tacit.training import PrincipalComponents
from tacit.training.evaluation import classification_loss

ABADI = RECIPES["abadi2016-mnist"]


@dataclasses.dataclass(frozen=True)
class Knobs:
    steps: int = 30
    epsilon: float = 3.0


def configure(knobs):
    preparations = (PrincipalComponents(30, 20.0, whitening=0.5),)
    return small_configuration(steps=knobs.steps, average=0.9, preparations=lambda _: preparations, private=False)


SMALL = small_recipe(Knobs(), configure, (MODERATE, Published(None, 0.9, "none")))


def quiet(*_):
    pass


def test_a_result_says_that_it_has_no_guarantee():
    told = []
    result = run_recipe(SMALL, {}, Conditions(seeds=2), lambda *done: told.append(done))
    json.loads(to_json(result))
    assert {epsilon for *_, epsilon, doing in told if doing == "training"} == {None}
    assert result["knobs"] == {"steps": 30, "epsilon": None}
    assert (result["epsilon"], result["delta"], result["noise_multiplier"]) == (None, None, None)
    assert result["epsilon_by_accountant"] == {}
    assert result["statement"] == NO_GUARANTEE
    assert (result["published"], result["published_epsilon"]) == (0.9, None)
    assert result["steps"] == 30
    assert result["measured"] > 0.8  # DP-PCA with noise 20 on so few records leaves less
    assert {point["epsilon"] for point in result["history"]} == {None}
    assert [p["accuracy"] for p in result["history"] if p["step"] == 30] == result["accuracies"]


def test_a_step_is_that_of_ordinary_descent():
    torch.manual_seed(0)
    train = Split(torch.randn(40, 5), torch.randint(3, (40,)))
    ours, theirs = nn.Linear(5, 3), nn.Linear(5, 3)
    theirs.load_state_dict(ours.state_dict())
    optimizer = torch.optim.SGD(ours.parameters(), 0.1)
    train_plainly(ours, classification_loss, train, batch_size=8, steps=4, optimizer=optimizer, seed=3)
    generator = torch.Generator().manual_seed(3)
    for _ in range(4):
        rows = torch.randint(40, (8,), generator=generator)
        loss = F.cross_entropy(theirs(train.inputs[rows]), train.targets[rows])
        grads = torch.autograd.grad(loss, list(theirs.parameters()))
        for parameter, grad in zip(theirs.parameters(), grads, strict=True):
            parameter.data -= 0.1 * grad
    torch.testing.assert_close(ours.weight, theirs.weight)


def test_principal_components_are_those_of_the_records():
    inputs = load("digits").train.inputs
    (projection,) = prepare_plainly([PrincipalComponents(5, 20.0)], inputs)
    rows = F.normalize(inputs.flatten(1).double())
    _, vectors = torch.linalg.eigh(rows.T @ rows)
    found = F.normalize(projection.directions.double(), dim=0)
    cosines = (found * vectors[:, -5:].flip(1)).sum(dim=0).abs()
    torch.testing.assert_close(cosines, torch.ones(5, dtype=torch.float64), atol=1e-3, rtol=0)


def test_no_account_pays_for_it_and_no_sweep_counts_it(tmp_path, monkeypatch):
    book = Ledger.create(tmp_path / "book.sqlite", dataset="digits", budget=Budget(3.0, 1e-5))
    for slow in ("make_start", "load"):  # refused before
        monkeypatch.setattr(Configuration, slow, None)
    with pytest.raises(InputError, match="no budget pays"):
        run_recipe(SMALL, {}, Conditions(account=book.account("digits")), quiet)
    with pytest.raises(InputError, match="no plan"):
        configure(Knobs()).plan(1000)
    with pytest.raises(InputError, match="setting=plain: has no privacy"):
        run_sweep(SMALL, read_axes(["steps=1,2"]), {}, Conditions(), quiet)


def test_the_baseline_of_2016_has_the_papers_figure_and_no_knobs_of_privacy():
    knobs = ABADI.with_settings({"setting": "plain"})
    configuration = ABADI.configure(knobs)
    assert not configuration.private
    assert (configuration.epsilon, configuration.noise_multiplier) == (None, None)
    assert configuration.steps_for(60_000) == 10_000
    figure = ABADI.published_for(knobs, private=False)
    assert (figure.epsilon, figure.accuracy) == (None, 0.983)
    private = ABADI.published_for(ABADI.with_settings({"epsilon": "8"}))
    assert (private.epsilon, private.accuracy) == (8.0, 0.97)
    for key, value in {"epsilon": "8", "noise": "4", "pca_noise": "7", "clip": "1", "delta": "1e-6"}.items():
        with pytest.raises(InputError, match=r"means nothing in a setting without privacy\. Leave it out"):
            ABADI.check({"setting": "plain", key: value})
    with pytest.raises(InputError, match="epsilon=2: means nothing"):  # also where it is the default
        ABADI.check({"setting": "plain", "epsilon": "2"})
