"""The same models without privacy, to compare with. Nothing here may be published."""

import math

import numpy as np

from tacit.linear.moments import UNIT, sum_moments
from tacit.linear.newton import residuals_of
from tacit.linear.rows import RESOLUTION, Examples, Floats

_MOST_STEPS = 200
_SETTLED = 1e-6
_NEGLIGIBLE = 1e-12  # of the largest eigenvalue: the inputs of a category add up to a constant


def plain_regression(examples: Examples) -> tuple[Floats, Floats]:
    """Coefficients of least squares, and those of the constant that is best: the mean."""
    moments = sum_moments(examples)
    gram, cross = moments.gram / UNIT, moments.cross / UNIT
    constant = np.zeros(len(cross))
    constant[0] = cross[0] / gram[0, 0]
    return _inverse(gram) @ cross, constant


def plain_classifier(examples: Examples, classes: int) -> tuple[Floats, Floats]:
    """Coefficients of logistic regression, and those of the constant that is best: the commonest class.

    Newton's method with half of the second moments for the Hessian (Böhning 1992) and Nesterov's momentum.
    """
    inverse = _inverse(sum_moments(examples).gram / UNIT)
    found = ahead = np.zeros((len(inverse), classes))
    momentum = 1.0
    for _ in range(_MOST_STEPS):
        moved = ahead + 2 * inverse @ _gradient(examples, ahead)
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = moved + (momentum - 1) / following * (moved - found)
        change = float(np.abs(moved - found).max())
        found, momentum = moved, following
        if change < _SETTLED:
            break
    constant = np.zeros_like(found)
    for block in examples():
        constant[0] += np.bincount(block.targets, minlength=classes)
    return found, constant


def _gradient(examples: Examples, coefficients: Floats) -> Floats:
    total = np.zeros_like(coefficients)
    for block in examples():
        design = block.design / RESOLUTION
        total += design.T @ residuals_of(block.targets, design @ coefficients, classes=coefficients.shape[1])
    return total


def _inverse(gram: Floats) -> Floats:
    return np.asarray(np.linalg.pinv(gram, rcond=_NEGLIGIBLE, hermitian=True), dtype=np.float64)
