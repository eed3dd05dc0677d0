"""Who is employed, from a census sample: a logistic regression by DP-SGD, and a network for tables.

Setting ``ten`` predicts from sex, being married, black or asian, a college degree (educ of at least 13), military
service, citizenship, disability, English ability, and the product of black and female. Setting ``all`` predicts from
every column but those that say where people live; there educ is a category of 16 values.

Beside each private figure stand the same rows' plain logistic regression (maximum likelihood, no noise), the constant
answer, and the area under the ROC curve. Settings were chosen on held-out training rows at epsilon 1, from up to a
dozen tries each with three seeds.
"""

import dataclasses
import functools
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from torch import nn

from tacit import models
from tacit.clipping import Flat
from tacit.core.validation import check_choice
from tacit.datasets import DataSet, load_table, read_schema
from tacit.datasets.tables import BooleanColumn, CategoryColumn, Schema
from tacit.datasets.tables.census import census_file
from tacit.plan import DPSGD
from tacit.recipes.conditions import TRAINING, Conditions, Progress, seed_facts
from tacit.recipes.guarantee import guarantee_facts
from tacit.recipes.holding_out import hold_out
from tacit.recipes.interrupting import seed_by_seed
from tacit.recipes.knob_rules import check_lot
from tacit.recipes.recipe import DELTA, Recipe
from tacit.training.evaluation import classification_loss, evaluate
from tacit.training.fitting import fit
from tacit.training.optimizers import make_optimizer
from tacit.training.threads import threads_for

TEN, ALL = "ten", "all"
_TARGET = "employed"
_TEN_FEATURES = (
    *("sex", "married", "black", "asian", "college", "militaryservice", "uscitizen", "disability", "englishability"),
    "black_female",
)
_SCHEMA = Path(__file__).with_name("census_employed.toml")
_NO_PENALTY = 1e6  # scikit-learn's C: the inverse of how much long weights are punished


@dataclasses.dataclass(frozen=True)
class Knobs:
    """What may be changed. ``learning_rate`` of None is what suits model and setting."""

    setting: str = TEN
    epsilon: float = 1.0
    batch_size: int = 4096
    steps: int = 100
    clip: float = 1.0
    learning_rate: float | None = None
    average: float = 0.95
    delta: float = DELTA

    def __post_init__(self) -> None:
        check_choice("setting", self.setting, (TEN, ALL))


def load_census(setting: str) -> DataSet:
    """The sample with the columns of a setting."""
    schema = read_schema(_SCHEMA)
    if setting == TEN:
        return load_table(census_file(), _TARGET, schema, features=_TEN_FEATURES)
    return load_table(census_file(), _TARGET, _all_columns(schema))


def _all_columns(schema: Schema) -> Schema:
    """Without the computed columns, and educ as a category: its codes are levels and no amounts."""
    levels = CategoryColumn("educ", tuple(str(level) for level in range(1, 17)))
    read = {
        name: column
        for name, column in schema.columns.items()
        if not isinstance(column, BooleanColumn) or column.rule is None
    }
    return dataclasses.replace(schema, columns={**read, "educ": levels})


@dataclasses.dataclass(frozen=True)
class _Model:
    """What one seed gave."""

    accuracy: float
    area: float
    seconds: float
    points: list[dict[str, Any]]


def run(
    model_name: str, rates: Mapping[str, float], knobs: Knobs, conditions: Conditions, progress: Progress
) -> dict[str, Any]:
    """Trains and tests over all seeds; plain JSON values.

    Where an account pays for the models, the figures without privacy are left out.
    """
    data = load_census(knobs.setting)
    if conditions.held_out:
        data = hold_out(data)
    rate = rates[knobs.setting] if knobs.learning_rate is None else knobs.learning_rate
    plan = _plan(knobs, len(data.train))
    conditions.require([plan])

    def train(seed: int) -> _Model:
        started = time.perf_counter()
        model, points = _train(model_name, data, plan, rate, knobs.average, seed, conditions, progress)
        accuracy, area = evaluate(model, data.test, data.task), _area(model, data)
        seconds = time.perf_counter() - started
        return _Model(accuracy, area, seconds, [*points, _point(seed, plan, plan.steps, accuracy)])

    def tell(models: list[_Model]) -> dict[str, Any]:
        return {
            **_summary(models, data, plan, conditions),
            "training": {
                "optimizer": "momentum",
                "learning_rate": rate,
                "average": knobs.average,
                "weights_on_the_way": f"exponential average, decay {knobs.average:g}",
                "model": model_name,
            },
        }

    return seed_by_seed(range(conditions.seeds), train, tell)


def _plan(knobs: Knobs, examples: int) -> DPSGD:
    return DPSGD(
        expected_batch_size=check_lot(knobs.batch_size, examples),
        examples=examples,
        steps=knobs.steps,
        clipping=Flat(knobs.clip),
        delta=knobs.delta,
        epsilon=knobs.epsilon,
    )


def _summary(models: list[_Model], data: DataSet, plan: DPSGD, conditions: Conditions) -> dict[str, Any]:
    areas = [model.area for model in models]
    return {
        "published": None,
        "published_epsilon": None,
        "auc": statistics.fmean(areas),
        "auc_std": statistics.stdev(areas) if len(areas) > 1 else None,
        "beside": {"AUC": statistics.fmean(areas), **(_plain_figures(data) if conditions.account is None else {})},
        "measured_on": f"{len(data.test)} {'held-out training' if conditions.held_out else 'test'} rows",
        **guarantee_facts(plan),
        "epsilons": {},
        "steps": plan.steps,
        **seed_facts(
            [model.accuracy for model in models],
            [model.seconds for model in models],
            [point for model in models for point in model.points],
            conditions,
        ),
    }


def _train(
    name: str,
    data: DataSet,
    plan: DPSGD,
    rate: float,
    average: float,
    seed: int,
    conditions: Conditions,
    progress: Progress,
) -> tuple[nn.Module, list[dict[str, Any]]]:
    torch.manual_seed(seed)  # initial weights; noise, sampling and what steps draw have sources of their own
    model = models.build(name, data.input_shape, data.classes, columns=data.columns).to(conditions.device)
    bound = plan.clipping.bind({key: p.numel() for key, p in model.named_parameters()}).total
    noise_scale = plan.noise_multiplier * bound / plan.expected_batch_size
    due = {max(1, round(plan.steps * k / conditions.points)) for k in range(1, conditions.points)}
    points: list[dict[str, Any]] = []

    def after_step(step: int, current: nn.Module) -> None:
        if step in due:
            points.append(_point(seed, plan, step, evaluate(current, data.test, data.task)))
            progress(seed, step, plan.steps, points[-1]["epsilon"], TRAINING)

    with threads_for(model, plan.expected_batch_size):
        fit(
            model,
            classification_loss,
            data.train,
            plan,
            optimizer=make_optimizer("momentum", model.parameters(), rate, noise_scale=noise_scale),
            average_decay=average,
            account=conditions.account,
            run=f"{name} on {data.name}, seed {seed}",
            execution=conditions.execution,
            callbacks=[after_step],
        )
    return model, points


def _point(seed: int, plan: DPSGD, step: int, accuracy: float) -> dict[str, Any]:
    epochs = step * plan.expected_batch_size / plan.examples
    return {"seed": seed, "step": step, "epochs": epochs, "epsilon": plan.epsilon(step), "accuracy": accuracy}


@torch.no_grad()
def _area(model: nn.Module, data: DataSet) -> float:
    """The chance that of two people, one employed and one not, the model takes the first for more likely employed."""
    device = next(model.parameters()).device
    scores = model(data.test.inputs.to(device)).diff(dim=1)[:, 0]
    return float(roc_auc_score(data.test.targets.numpy(), scores.cpu().numpy()))


def _plain_figures(data: DataSet) -> dict[str, float]:
    """What the same rows give without privacy."""
    test = data.test.targets.numpy()
    plain = LogisticRegression(C=_NO_PENALTY, max_iter=10_000)
    plain.fit(data.train.inputs.numpy(), data.train.targets.numpy())
    inputs = data.test.inputs.numpy()
    most = int(np.bincount(data.train.targets.numpy(), minlength=2).argmax())
    return {
        "plain logistic regression": float(plain.score(inputs, test)),
        "its AUC": float(roc_auc_score(test, plain.decision_function(inputs))),
        "constant answer": float(np.mean(test == most)),
    }


def _recipe(name: str, title: str, method: str, model: str, rates: Mapping[str, float]) -> Recipe:
    return Recipe(
        name=name,
        title=title,
        method=method,
        source="Own; DP-SGD after Abadi et al., CCS 2016",
        dataset="pums",
        knobs=Knobs(),
        run=functools.partial(run, model, rates),
    )


RECIPES = (
    _recipe(
        "census-employed-linear",
        "Who is employed, by logistic regression on a census sample",
        "logistic regression",
        "linear",
        {TEN: 2.0, ALL: 4.0},
    ),
    _recipe(
        "census-employed-network",
        "Who is employed, by a network with bins and embeddings on a census sample",
        "network for tables",
        "table-mlp",
        {TEN: 1.0, ALL: 1.0},
    ),
)
