"""Everything that the page of a fit shows, as plain values; all but the release in it is private."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tacit.linear.curves import error_curves, split_curve
from tacit.linear.experiment import LinearResult
from tacit.linear.fitting import LinearModel
from tacit.linear.guarantee import Guarantee
from tacit.linear.rows import Floats
from tacit.linear.tables import TrainingRows


def evaluation(
    result: LinearResult,
    guarantee: Guarantee,
    *,
    curve_repeats: int,
    examples: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """The result with curves, coefficients and some test rows, for `tacit.reporting.linear_page`."""
    task = result.task
    rows = TrainingRows(task)
    known = examples or sum(len(block.targets) for block in rows())
    curves = error_curves(
        task,
        guarantee,
        result.model.method,
        repeats=curve_repeats,
        examples=examples,
        rows=rows,
        progress=progress,
    )
    plain = LinearModel(result.scores.unsafe_plain_coefficients, result.model.scale, "plain", result.model.statement)
    return {
        **result.to_dict(),
        "is_private": True,
        "table": task.table.name,
        "coefficients": _coefficients(result, plain),
        "shown": result.scores.unsafe_shown.tolist(),
        "curves": curves,
        "curve_repeats": curve_repeats,
        "split": None if task.classes else split_curve(result, guarantee, known),
    }


def _coefficients(result: LinearResult, plain: LinearModel) -> list[dict[str, Any]]:
    """Private and plain slopes by feature, in scaled units, so that they can be compared with each other."""
    names = ("intercept", *result.task.table.feature_names(result.task.features))
    return [
        {"feature": name, "private": float(private), "plain": float(known)}
        for name, private, known in zip(names, _one(result.model), _one(plain), strict=True)
    ]


def _one(model: LinearModel) -> Floats:
    """A column of coefficients: the regression's, or the log-odds of the last class against the first."""
    values = model.coefficients
    return np.asarray(values[:, -1] - values[:, 0] if model.is_classifier else values)
