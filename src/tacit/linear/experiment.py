"""How good a private fit is, beside one without privacy and beside a constant.

All figures here are computed from private rows without noise: **they are for whoever holds the data**, to judge a
method by, and no release. The coefficients of one fit are.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.core.errors import InputError
from tacit.core.randomness import Randomness
from tacit.core.validation import check_count
from tacit.linear.fitting import LinearModel
from tacit.linear.guarantee import Guarantee, Terms
from tacit.linear.plain import plain_classifier, plain_regression
from tacit.linear.rows import Floats
from tacit.linear.tables import Task, TrainingRows, fit_table

_SHOWN_ROWS = 2000


@dataclasses.dataclass(frozen=True, eq=False)
class Scores:
    """Test scores, mean squared errors of targets in [-1, 1] or accuracies; private, since nothing paid for them.

    Attributes:
        unsafe_private: of each private fit.
        unsafe_plain: of the fit without privacy.
        unsafe_constant: of the best constant: the mean, or the commonest class, of the training rows.
        unsafe_shown: some test targets and the first private fit's predictions of them, (rows, 2), for a figure.
        unsafe_plain_coefficients: of the fit without privacy, for scaled rows.
    """

    unsafe_private: Floats
    unsafe_plain: float
    unsafe_constant: float
    unsafe_shown: Floats
    unsafe_plain_coefficients: Floats

    @property
    def unsafe_median(self) -> float:
        """The median over the private fits."""
        return float(np.median(self.unsafe_private))


@dataclasses.dataclass(frozen=True, eq=False)
class LinearResult:
    """What came out.

    Attributes:
        task: what was predicted.
        models: one for each noise draw; each of them spent the budget.
        scores: how good they are; private.
        seconds: in all.
    """

    task: Task
    models: tuple[LinearModel, ...]
    scores: Scores
    seconds: float

    @property
    def model(self) -> LinearModel:
        """The first fit: the one to publish."""
        return self.models[0]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values. What is private is listed under ``private``."""
        statement = self.model.statement
        name = "test_accuracy" if self.task.classes else "test_mse"
        names = self.task.table.feature_names(self.task.features)
        low, high = np.quantile(self.scores.unsafe_private, [0.25, 0.75])
        return {
            name: self.scores.unsafe_median,
            f"{name}_quartiles": [float(low), float(high)],
            "plain": self.scores.unsafe_plain,
            "constant": self.scores.unsafe_constant,
            "private": [name, f"{name}_quartiles", "plain", "constant"],
            "method": self.model.method,
            "epsilon": statement.epsilon,
            "delta": statement.delta,
            "neighbours": statement.neighbours.value,
            "target": self.task.target,
            "repeats": len(self.models),
            "release": {"features": list(names), **self.model.to_dict()},
            "statement": statement.to_dict(),
            "seconds": self.seconds,
        }


def run_linear(
    task: Task,
    guarantee: Guarantee,
    *,
    method: str = "auto",
    split: float | None = None,
    examples: int | None = None,
    repeats: int = 1,
    terms: Terms | None = None,
    unsafe_seed: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> LinearResult:
    """Fits ``repeats`` times with fresh noise, each fit paid for, and scores all of them on the rows for testing."""
    started = time.perf_counter()
    check_count("repeats", repeats)
    rows = TrainingRows(task)
    models = []
    for number in range(repeats):
        seed = None if unsafe_seed is None else unsafe_seed + number
        models.append(
            fit_table(
                task, guarantee, method=method, split=split, examples=examples, rows=rows, terms=terms,
                randomness=Randomness(unsafe_seed=seed),
            )
        )  # fmt: skip
        if progress is not None:
            progress(number + 1)
    scores = score(task, models, rows)
    return LinearResult(task, tuple(models), scores, time.perf_counter() - started)


def score(task: Task, models: Sequence[LinearModel], rows: TrainingRows) -> Scores:
    """Scores of these fits, of one without privacy and of a constant, in one pass over the rows for testing."""
    classes = len(task.classes)
    plain, constant = plain_classifier(rows, classes) if classes else plain_regression(rows)
    fits = [model.coefficients for model in models] + [plain, constant]
    stacked = np.stack(fits, axis=-1)
    total, count = np.zeros(len(fits)), 0
    shown: list[Floats] = []
    seen: set[float] = set()
    scale = task.scale()
    for inputs, targets in task.rows(test=True):
        predictions = np.tensordot(scale.scaled(inputs), stacked, axes=1)
        total += _summed(predictions, targets)
        count += len(targets)
        seen |= set(np.unique(targets).tolist()[:2])
        if sum(map(len, shown)) < _SHOWN_ROWS:
            shown.append(_pairs(predictions[..., 0], targets)[:_SHOWN_ROWS])
    _check_test(task, count, len(seen))
    figures = total / count
    return Scores(figures[:-2], float(figures[-2]), float(figures[-1]), np.concatenate(shown)[:_SHOWN_ROWS], plain)


def _summed(predictions: Floats, targets: npt.NDArray[np.generic]) -> Floats:
    """The sum over rows of squared errors, or of right answers, for each fit."""
    if predictions.ndim == 2:
        errors = predictions - targets.astype(np.float64)[:, None]
        return np.asarray(np.einsum("rf,rf->f", errors, errors))
    return np.asarray((predictions.argmax(axis=1) == targets[:, None]).sum(axis=0), dtype=np.float64)


def _pairs(predictions: Floats, targets: npt.NDArray[np.generic]) -> Floats:
    predicted = predictions if predictions.ndim == 1 else predictions.argmax(axis=1)
    return np.stack([targets.astype(np.float64), predicted.astype(np.float64)], axis=1)


def _check_test(task: Task, count: int, values: int) -> None:
    """Looks at the rows for testing only: a refusal that turned on training rows would tell about them."""
    if count == 0:
        raise InputError(
            f"test_fraction={task.test_fraction:g}: leaves no row for testing. Take a longer table or a larger one."
        )
    if values < 2:
        raise InputError(
            f"target={task.target!r}: has the same value in every row for testing, so that no model could be told from "
            "a constant. Take another target or a longer table."
        )
