"""Curves for the page of a fit: error against epsilon, and what a split is expected to cost.

The first is computed from private rows without paying, for whoever holds them; the second from public facts.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tacit.linear.experiment import LinearResult, unsafe_test_scores
from tacit.linear.fitting import problem_of
from tacit.linear.functional import default_split, planned_noise
from tacit.linear.guarantee import Guarantee
from tacit.linear.shrinkage import expected_excess
from tacit.linear.tables import Task, TrainingRows, fit_table

EPSILONS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
_SHARES = np.linspace(0.2, 0.95, 46)


def error_curves(
    task: Task,
    guarantee: Guarantee,
    method: str,
    *,
    repeats: int,
    examples: int | None = None,
    rows: TrainingRows | None = None,
    epsilons: Sequence[float] = EPSILONS,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Median and quartiles of the test score at each epsilon: of a method, and of the functional mechanism beside it.

    Each row names its delta: pure and approximate guarantees are different things at the same epsilon. The functional
    mechanism is left out where it does not apply, with more than two classes.
    """
    rows = rows or TrainingRows(task)
    lines = [(method, guarantee.delta)]
    if method != "functional" and len(task.classes) <= 2:
        lines.append(("functional", 0.0))
    points = [(name, delta, epsilon) for name, delta in lines for epsilon in epsilons]
    fitted = []
    for number, (name, delta, epsilon) in enumerate(points):
        at = Guarantee(epsilon, delta, guarantee.neighbours, guarantee.unit)
        fitted += [fit_table(task, at, method=name, examples=examples, rows=rows) for _ in range(repeats)]
        if progress is not None:
            progress(number + 1, len(points))
    scores, _ = unsafe_test_scores(task, [model.coefficients for model in fitted])
    quartiles = np.quantile(scores.reshape(len(points), repeats), [0.25, 0.5, 0.75], axis=1).T
    return [
        {"method": name, "delta": delta, "epsilon": epsilon, "median": middle, "quartiles": [low, high]}
        for (name, delta, epsilon), (low, middle, high) in zip(points, quartiles.tolist(), strict=True)
    ]


def split_curve(result: LinearResult, guarantee: Guarantee, examples: int) -> dict[str, Any]:
    """The functional mechanism's expected excess loss against the quadratic coefficients' share of epsilon."""
    pure = Guarantee(guarantee.epsilon, 0.0, guarantee.neighbours, guarantee.unit)
    problem = problem_of(result.model.scale, classes=len(result.task.classes), examples=examples)

    def cost(share: float) -> float:
        return expected_excess(planned_noise(problem, pure, share), problem.size, examples)

    default = default_split(problem, pure)
    return {
        "epsilon": guarantee.epsilon,
        "shares": _SHARES.tolist(),
        "excess": [cost(float(share)) for share in _SHARES],
        "default": default,
        "default_excess": cost(default),
        "even_excess": cost(0.5),
    }
