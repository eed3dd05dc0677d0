"""One private fit: from rows to coefficients that may be published, with their statement."""

import dataclasses
from typing import Any

import numpy as np

from tacit.core.privacy import Statement
from tacit.core.randomness import Randomness
from tacit.linear.guarantee import Guarantee, Spending, Terms
from tacit.linear.problem import Method, Problem
from tacit.linear.rows import Examples, Floats, Integers, PublicScale


@dataclasses.dataclass(frozen=True, eq=False)
class LinearModel:
    """What a fit released. All of it is public, and whatever is computed from it.

    Attributes:
        coefficients: of scaled rows, (1 + d,) for targets in [-1, 1], or (1 + d, classes).
        scale: how rows are scaled.
        method: its name.
        statement: the guarantee.
    """

    coefficients: Floats
    scale: PublicScale
    method: str
    statement: Statement

    @property
    def is_classifier(self) -> bool:
        """Whether it tells classes."""
        return self.coefficients.ndim == 2

    def scores(self, inputs: Floats) -> Floats:
        """(rows,) predictions in [-1, 1] units, not cut to them, or (rows, classes) scores."""
        scores: Floats = self.scale.scaled(inputs) @ self.coefficients
        return scores

    def classes(self, inputs: Floats) -> Integers:
        """The code of the likeliest class of each row."""
        codes: Integers = np.argmax(self.scores(inputs), axis=1)
        return codes

    def raw_coefficients(self) -> tuple[Floats, Floats]:
        """Slopes, (d,) or (d, classes), and intercepts, for inputs that lie within their bounds, unscaled."""
        unit = self.scale.unit if not self.is_classifier else self.scale.unit[:, None]
        slopes = self.coefficients[1:] / unit
        return slopes, self.coefficients[0] - self.scale.centre @ slopes

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values. Slopes are for inputs as `scale` takes them, scores as `scores` gives them."""
        slopes, intercept = self.raw_coefficients()
        return {
            "method": self.method,
            "slopes": slopes.tolist(),
            "intercept": np.asarray(intercept).tolist(),
            "statement": self.statement.to_dict(),
        }


def fit_rows(
    examples: Examples,
    scale: PublicScale,
    problem: Problem,
    method: Method,
    guarantee: Guarantee,
    *,
    terms: Terms | None = None,
    randomness: Randomness | None = None,
    caveats: tuple[str, ...] = (),
) -> LinearModel:
    """Fits once. Everything is planned from public facts, and taken from the account, before ``examples`` is called.

    Args:
        examples: all rows.
        scale, problem: the public facts about them. The number of rows is among those under replace-one and zero-out,
            where the caller may have counted them.
        method, guarantee: what is released.
        terms: who pays.
        randomness: of the noise; a new one by default.
        caveats: what else the statement has to say.

    Raises:
        BudgetExceededError: the account does not hold it; nothing was spent.
        InputError: the method does not suit the guarantee.
    """
    source = randomness or Randomness()
    mechanisms = method.mechanisms(problem, guarantee)
    with Spending(mechanisms, guarantee, terms or Terms(), source) as spending:
        coefficients = method.fit(problem, examples, spending)
    caveats = (*_about_delta(guarantee.delta, problem.examples), *caveats)
    statement = guarantee.statement(method.describe(), void=source.voids_guarantee, caveats=caveats)
    return LinearModel(coefficients, scale, method.name, statement)


def _about_delta(delta: float, examples: int | None) -> tuple[str, ...]:
    if examples is None or delta * examples < 1:
        return ()
    return (f"delta is at least 1 / {examples} rows, so that publishing one random row whole would meet the guarantee",)


def problem_of(scale: PublicScale, *, classes: int = 0, examples: int | None = None) -> Problem:
    """The public facts of a fit."""
    return Problem(scale.inputs, scale.l1, scale.l2, scale.largest, classes, examples)
