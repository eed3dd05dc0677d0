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
_SCORE = (
    "An input is (value - lower) / (upper - lower) with the value cut to these bounds, or 1 where the column has the "
    "category and else 0. The score is the intercept plus the sum of slopes times inputs."
)
_LIKELIEST = "There is one score for each class, and the class with the largest is predicted."
_NUMBER = "The target is (lower + upper) / 2 + score * (upper - lower) / 2 with the target_bounds."


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
        model: the fit to publish, the one that was paid for.
        scores: how good it and other draws of the noise are; private.
        seconds: in all.
    """

    task: Task
    model: LinearModel
    scores: Scores
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values. Only ``release`` and ``statement`` may be published; ``private`` lists what may not.

        ``epsilon`` is None where a fixed seed voids the guarantee.
        """
        statement = self.model.statement.to_dict()
        name = "test_accuracy" if self.task.classes else "test_mse"
        low, high = np.quantile(self.scores.unsafe_private, [0.25, 0.75])
        return {
            name: self.scores.unsafe_median,
            f"{name}_quartiles": [float(low), float(high)],
            "plain": self.scores.unsafe_plain,
            "constant": self.scores.unsafe_constant,
            "private": [name, f"{name}_quartiles", "plain", "constant"],
            "method": self.model.method,
            "epsilon": statement["epsilon"],
            "delta": statement["delta"],
            "neighbours": statement["neighbours"],
            "repeats": len(self.scores.unsafe_private),
            "release": self.release(),
            "statement": statement["sentence"],
            "seconds": self.seconds,
        }

    def release(self) -> dict[str, Any]:
        """The fitted model as plain JSON values, enough to predict with; all of it is public."""
        task = self.task
        aim = {"classes": list(task.classes)} if task.classes else {"target_bounds": list(task.target_bounds)}
        return {
            "target": task.target,
            **aim,
            "features": list(task.table.feature_names(task.features)),
            "inputs": task.describe_inputs(),
            "prediction": f"{_SCORE} {_LIKELIEST if task.classes else _NUMBER}",
            **self.model.to_dict(),
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
    rows: TrainingRows | None = None,
    progress: Callable[[int], None] | None = None,
) -> LinearResult:
    """Fits once for publication, which is paid for, and ``repeats`` - 1 times more to see how much scores vary.

    The further fits are for the eyes of whoever holds the data, as all scores are: they are neither kept nor paid for.
    Rows that no score could be computed from are refused before anything is paid.
    """
    started = time.perf_counter()
    check_count("repeats", repeats)
    _check_test_rows(task)
    rows = rows or TrainingRows(task)

    def fit(number: int) -> LinearModel:
        seed = None if unsafe_seed is None else unsafe_seed + number
        fitted = fit_table(
            task,
            guarantee,
            method=method,
            split=split,
            examples=examples,
            rows=rows,
            terms=None if number else terms,
            randomness=Randomness(unsafe_seed=seed),
        )
        if progress is not None:
            progress(number + 1)
        return fitted

    models = [fit(number) for number in range(repeats)]
    classes = len(task.classes)
    plain, constant = plain_classifier(rows, classes) if classes else plain_regression(rows)
    figures, shown = unsafe_test_scores(task, [*(model.coefficients for model in models), plain, constant])
    scores = Scores(figures[:-2], float(figures[-2]), float(figures[-1]), shown, plain)
    return LinearResult(task, models[0], scores, time.perf_counter() - started)


def unsafe_test_scores(task: Task, fitted: Sequence[Floats]) -> tuple[Floats, Floats]:
    """The score of each of these coefficients on the rows for testing, in one pass; and some rows, see `Scores`."""
    stacked = np.stack(list(fitted), axis=-1)
    total, count = np.zeros(len(fitted)), 0
    sample = _EvenSample(_SHOWN_ROWS)
    scale = task.scale()
    for inputs, targets in task.rows(test=True):
        predictions = np.tensordot(scale.scaled(inputs), stacked, axes=1)
        total += _summed(predictions, targets)
        count += len(targets)
        sample.add(_pairs(predictions[..., 0], targets))
    return total / count, sample.rows


class _EvenSample:
    """At most so many rows of a stream, evenly spread over it: where there are too many every other one goes."""

    def __init__(self, most: int) -> None:
        self._most, self._stride, self._seen = most, 1, 0
        self.rows: Floats = np.zeros((0, 2))

    def add(self, rows: Floats) -> None:
        """The next rows."""
        first = -self._seen % self._stride
        self._seen += len(rows)
        self.rows = np.concatenate([self.rows, rows[first :: self._stride]])
        while len(self.rows) > self._most:
            self.rows = self.rows[::2]
            self._stride *= 2


def _summed(predictions: Floats, targets: npt.NDArray[np.generic]) -> Floats:
    """The sum over rows of squared errors, or of right answers, for each fit."""
    if predictions.ndim == 2:
        errors = predictions - targets.astype(np.float64)[:, None]
        return np.asarray(np.einsum("rf,rf->f", errors, errors))
    return np.asarray((predictions.argmax(axis=1) == targets[:, None]).sum(axis=0), dtype=np.float64)


def _pairs(predictions: Floats, targets: npt.NDArray[np.generic]) -> Floats:
    predicted = predictions if predictions.ndim == 1 else predictions.argmax(axis=1)
    return np.stack([targets.astype(np.float64), predicted.astype(np.float64)], axis=1)


def _check_test_rows(task: Task) -> None:
    """Looks at the rows for testing only: a refusal that turned on training rows would tell about them.

    On the way every cell is read, so that a table with a bad one is refused here too.
    """
    count = 0
    values: set[float] = set()
    for _, targets in task.rows(test=True):
        count += len(targets)
        values |= set(np.unique(targets)[:2].tolist())
    if count == 0:
        raise InputError(
            f"test_fraction={task.test_fraction:g}: leaves no row for testing. Take a longer table or a larger one."
        )
    if len(values) < 2:
        raise InputError(
            f"target={task.target!r}: has the same value in every row for testing, so that no model could be told from "
            "a constant. Take another target or a longer table."
        )
