"""Linear models on generated tables, where the best coefficients are known: how errors fall, how settings were chosen.

The error is the excess of the mean squared error over that of least squares on the same rows, which needs no rows for
testing: it is a quadratic form in the difference of the coefficients.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tacit.linear import Functional, Guarantee, Method, Newton, SufficientStatistics
from tacit.linear.fitting import fit_rows, problem_of
from tacit.linear.moments import UNIT, sum_moments
from tacit.linear.plain import plain_regression
from tacit.linear.rows import Block, Examples, Floats, PublicScale, targets_on_grid

Progress = Callable[[str], None]
EPSILONS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
_DELTA = 1e-6
_KINDS = ("uniform", "boolean", "mixed")


class GeneratedTable:
    """Rows whose target is linear in the features but for noise, cut to [-1, 1].

    Features are uniform; or booleans, some rare; or both, correlated by three hidden factors.
    """

    def __init__(self, rows: int, inputs: int, *, kind: str = "uniform", seed: int = 0) -> None:
        stream = np.random.default_rng([seed, rows, inputs, _KINDS.index(kind)])
        features = _features(kind, rows, inputs, stream)
        signal = features @ stream.standard_normal(inputs)
        spread = 0.35 * (signal - signal.mean()) / signal.std() + 0.35 * stream.standard_normal(rows)
        self.scale = PublicScale.box(-np.ones(inputs), np.ones(inputs))
        self.rows = rows
        self._block = Block(
            self.scale.on_grid(features), targets_on_grid(spread + stream.uniform(-0.5, 0.5), (-1.0, 1.0))
        )
        self._gram = sum_moments(self.examples).gram / UNIT
        self._best = plain_regression(self.examples)[0]

    @property
    def examples(self) -> Examples:
        """All rows, as one block."""

        def blocks() -> Iterator[Block]:
            yield self._block

        return blocks

    def excess(self, method: Method, guarantee: Guarantee, repeats: int) -> float:
        """The median excess over draws of the noise."""
        problem = problem_of(self.scale, examples=self.rows)
        fits = (fit_rows(self.examples, self.scale, problem, method, guarantee) for _ in range(repeats))
        return float(np.median([self._excess(model.coefficients) for model in fits]))

    def _excess(self, coefficients: Floats) -> float:
        difference = coefficients - self._best
        return float(difference @ self._gram @ difference) / self.rows


def measure_slopes(
    sizes: Sequence[int], widths: Sequence[int], repeats: int, progress: Progress
) -> dict[str, list[dict[str, Any]]]:
    """Excess errors over epsilon, rows and features, and the exponents that fit them.

    Noise on a sum of n rows shifts coefficients by its deviation over n. So an excess falls as :math:`\\epsilon^{-2}`
    (with a little less for Gaussian noise, whose deviation falls slower than :math:`1/\\epsilon` beyond 1) and as
    :math:`n^{-2}`, once it is small against the variance.
    """
    rows = []
    for width, size in itertools.product(widths, sizes):
        table = GeneratedTable(size, width)
        for method, delta in _methods():
            for epsilon in EPSILONS:
                excess = table.excess(method, Guarantee(epsilon, delta), repeats)
                rows.append(
                    {"method": method.name, "delta": delta, "d": width, "n": size, "epsilon": epsilon, "excess": excess}
                )
            progress(f"{size:,} rows, d = {width}: {method.name}")
    return {"rows": rows, "slopes": _slopes(rows, sizes, widths)}


def choose_newton(
    repeats: int, progress: Progress, shapes: Sequence[tuple[int, int]] = ((4000, 5), (16000, 14))
) -> list[dict[str, Any]]:
    """Settings of Newton's method on small tables of all kinds, by the mean logarithm of excess over the best one's."""
    tables = [GeneratedTable(*shape, kind=kind) for kind in _KINDS for shape in shapes]
    guarantees = [Guarantee(epsilon, _DELTA) for epsilon in (0.1, 0.4, 1.6)]
    grid = [
        Newton(steps=steps, gram_share=share, growth=growth, cut=cut)
        for steps, share, growth, cut in itertools.product((3, 4, 6), (0.3, 0.5), (1.0, 3.0), (0.5, 1.0))
    ]
    logs = np.zeros((len(grid), len(tables) * len(guarantees)))
    for column, (table, guarantee) in enumerate(itertools.product(tables, guarantees)):
        logs[:, column] = np.log([table.excess(method, guarantee, repeats) for method in grid])
        progress(f"table {column + 1} of {logs.shape[1]}")
    above = logs - logs.min(axis=0)
    rows = [
        {
            **{"steps": method.steps, "gram_share": method.gram_share, "growth": method.growth, "cut": method.cut},
            "mean_log_ratio": float(mean),
            "worst_log_ratio": float(worst),
        }
        for method, mean, worst in zip(grid, above.mean(axis=1), above.max(axis=1), strict=True)
    ]
    return sorted(rows, key=lambda row: row["mean_log_ratio"])


def _methods() -> list[tuple[Method, float]]:
    return [(Functional(), 0.0), (SufficientStatistics(), _DELTA), (Newton(), _DELTA)]


def _slopes(rows: Sequence[dict[str, Any]], sizes: Sequence[int], widths: Sequence[int]) -> list[dict[str, Any]]:
    """The exponent of epsilon from 0.4 on, for each table, and that of n, at each epsilon from 0.4 on."""
    found: list[dict[str, Any]] = []
    for (method, delta), width in itertools.product([(each.name, delta) for each, delta in _methods()], widths):
        mine = [row for row in rows if row["method"] == method and row["d"] == width and row["epsilon"] >= 0.4]
        for size in sizes:
            points = [(row["epsilon"], row["excess"]) for row in mine if row["n"] == size]
            found.append({"method": method, "delta": delta, "d": width, "n": size, "of": "epsilon", **_fit(points)})
        points = [(row["n"], row["excess"]) for row in mine]
        found.append({"method": method, "delta": delta, "d": width, "n": None, "of": "n", **_fit(points)})
    return found


def _fit(points: Sequence[tuple[float, float]]) -> dict[str, float]:
    x, y = np.log(np.asarray(points)).T
    return {"slope": float(np.polyfit(x, y, 1)[0])}


def _features(kind: str, rows: int, inputs: int, stream: np.random.Generator) -> Floats:
    if kind == "uniform":
        return stream.uniform(-1, 1, (rows, inputs))
    if kind == "boolean":
        return np.where(stream.random((rows, inputs)) < stream.uniform(0.03, 0.97, inputs), 1.0, -1.0)
    factors = stream.standard_normal((rows, 3)) @ stream.standard_normal((3, inputs))
    mixed = np.clip((factors + stream.standard_normal((rows, inputs))) / 3, -1, 1)
    mixed[:, ::2] = np.where(mixed[:, ::2] > stream.uniform(-0.5, 0.5, inputs)[::2], 1.0, -1.0)
    return mixed
