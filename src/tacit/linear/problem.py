"""What all methods share: the public facts of a fit, and what a method is."""

import dataclasses
from typing import Protocol

import numpy as np

from tacit.core.errors import InputError, UnsupportedError
from tacit.linear.guarantee import Guarantee, Mechanism, Spending
from tacit.linear.rows import Examples, Floats

_ROUNDED_UP = 1 + 2.0**-40  # more than what the computation of a bound in floating point can lose


@dataclasses.dataclass(frozen=True)
class Problem:
    """Public facts.

    Attributes:
        inputs: d, how many features there are besides the intercept.
        l1, l2, largest: bounds on the norms and the entries of a scaled row, without the intercept.
        classes: how many there are; 0 for a regression.
        examples: about how many rows, where that is public; None where it is not.
    """

    inputs: int
    l1: float
    l2: float
    largest: float = 1.0
    classes: int = 0
    examples: int | None = None

    @property
    def size(self) -> int:
        """The number of coefficients, with the intercept."""
        return self.inputs + 1

    @property
    def row_l1(self) -> float:
        """The largest L1 norm of a row with its intercept."""
        return _ROUNDED_UP * (1 + self.l1)

    @property
    def row_l2(self) -> float:
        """The largest L2 norm of a row with its intercept."""
        return _ROUNDED_UP * float((1 + self.l2**2) ** 0.5)


class Method(Protocol):
    """A way to coefficients. Its noise is planned from public facts, before it sees a row."""

    @property
    def name(self) -> str:
        """What the method is called."""
        ...

    def mechanisms(self, problem: Problem, guarantee: Guarantee) -> tuple[Mechanism, ...]:
        """Every release that `fit` will make, in order."""
        ...

    def fit(self, problem: Problem, examples: Examples, spending: Spending) -> Floats:
        """The coefficients of scaled rows: (1 + d,) for a regression, (1 + d, classes) for a classification."""
        ...

    def describe(self) -> str:
        """What was released, as a clause of a statement."""
        ...


def as_class_scores(coefficients: Floats) -> Floats:
    """The log-odds of class 1 against class 0 as the scores of both."""
    return np.stack([-coefficients / 2, coefficients / 2], axis=1)


def require_delta(name: str, guarantee: Guarantee) -> None:
    """Refuses a pure guarantee."""
    if guarantee.is_pure:
        raise InputError(
            f"delta=0: {name} adds Gaussian noise, which has no pure guarantee. Take a delta such as 1e-6, or "
            "method='functional'."
        )


def require_two_classes(name: str, problem: Problem) -> None:
    """Refuses more than two classes."""
    if problem.classes > 2:
        raise UnsupportedError(
            f"classes={problem.classes}: {name} is for numbers and for two classes. Use method='newton'."
        )
