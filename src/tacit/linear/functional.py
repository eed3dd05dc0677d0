r"""The functional mechanism: Laplace noise on the coefficients of the loss, seen as a polynomial in the weights.

For one row z (with its intercept, p = d + 1 entries) and target y in [-1, 1] the squared loss is

.. math:: (y - z^\top w)^2 = y^2 - 2y\,z^\top w + \sum_i z_i^2 w_i^2 + \sum_{i<j} 2 z_i z_j\, w_i w_j.

**Sensitivity.** With :math:`L = \max \|z\|_1`, the L1 norm of a row's quadratic coefficients is :math:`\sum_{ij}
|z_i z_j| = \|z\|_1^2 \le L^2`, that of the linear ones :math:`2|y|\,\|z\|_1 \le 2L`; both are attained at a corner.
Features in [-1, 1] have L = d + 1: :math:`(d+1)^2` and :math:`2(d+1)` for a row that is added, removed or zeroed, twice
that, :math:`2(d+1)^2` and :math:`4(d+1)`, for one that is replaced. These are the published ones. Rows of norm at most
R have :math:`L \le 1 + R\sqrt d`, which is tighter.

**Guarantee.** epsilon_1 on the quadratic and epsilon_2 on the linear coefficients, epsilon = epsilon_1 + epsilon_2 by
basic composition; delta is 0.

**Split.** The share of epsilon_1 minimises the expected excess loss of `tacit.linear.shrinkage`. Up to the
shrinkage of w itself that is the minimum of :math:`V = \sigma_b^2 + \sigma_A^2 \|w\|^2`, at :math:`(\epsilon_1 /
\epsilon_2)^3 = \|w\|^2 \frac{p+3}{p} (L/2)^2`: the larger share belongs to the quadratic part, and grows with d.

**Logistic loss.** To second order :math:`\log(1 + e^{-s}) \approx \log 2 - s/2 + s^2/8` for the margin :math:`s = \pm
z^\top w`. This polynomial is that of the squared loss on targets :math:`\pm 1` but for public factors, with its minimum
at twice the weights; noise and sensitivity carry over. It is an **approximation**: it is close for margins below about
2 and does not converge to logistic regression as n grows.

Reference: Zhang, Zhang, Xiao, Yang, Winslett, Functional Mechanism: Regression Analysis under Differential Privacy,
2012, https://arxiv.org/abs/1208.0219; here with two shares of the budget.
"""

import dataclasses
import math
from fractions import Fraction

import numpy as np
from scipy import optimize

from tacit.core.errors import InputError, UnsupportedError
from tacit.core.validation import check_choice, check_open_unit
from tacit.linear.guarantee import Guarantee, Mechanism, Spending
from tacit.linear.moments import UNIT, sum_moments
from tacit.linear.problem import Problem, as_class_scores
from tacit.linear.rows import Examples, Floats, Integers
from tacit.linear.shrinkage import MomentNoise, shrunk_solution
from tacit.mechanisms import DiscreteLaplace, grid_l1_sensitivity

REPAIRS = ("shrink", "regularise")
_ASSUMED_ROWS = 10_000
# Into how many steps one row's L1 bound is divided: rounding each coefficient may move it by a step more, which these
# make small, and accountants take longer for finer steps.
_LEAST_STEPS, _STEPS_A_COEFFICIENT = 1 << 16, 1 << 7


@dataclasses.dataclass(frozen=True)
class Functional:
    """Linear regression, or binary classification by the second-order expansion, with a pure guarantee.

    Args:
        split: the share of epsilon for the quadratic coefficients; None for the default above.
        repair: what to do with a quadratic form that noise made indefinite. ``shrink``: the posterior mean of
            `tacit.linear.shrinkage`. ``regularise``: as published, four standard deviations of the noise are added to
            the diagonal, and directions whose eigenvalue is still not above 0 are trimmed.
    """

    split: float | None = None
    repair: str = "shrink"
    name: str = dataclasses.field(default="functional", init=False)

    def __post_init__(self) -> None:
        if self.split is not None:
            check_open_unit("split", self.split, remedy="It is the share of epsilon for the quadratic coefficients.")
        check_choice("repair", self.repair, REPAIRS)

    def describe(self) -> str:
        """For statements."""
        return "the functional mechanism, Laplace noise on the coefficients of the loss"

    def share(self, problem: Problem, guarantee: Guarantee) -> float:
        """The share of epsilon for the quadratic coefficients."""
        return default_split(problem, guarantee) if self.split is None else self.split

    def mechanisms(self, problem: Problem, guarantee: Guarantee) -> tuple[Mechanism, ...]:
        """Laplace noise on the quadratic, then on the linear coefficients."""
        if not guarantee.is_pure:
            raise InputError(
                f"delta={guarantee.delta:g}: the functional mechanism's guarantee is pure. Take delta 0, or another "
                "method, such as newton."
            )
        if problem.classes > 2:
            raise UnsupportedError(
                f"classes={problem.classes}: the functional mechanism expands the loss of two classes. "
                "Use method='newton' with a delta above 0."
            )
        size, share = problem.size, self.share(problem, guarantee)
        quadratic, linear = sensitivities(problem)
        return (
            _laplace(quadratic, size * (size + 1) // 2, guarantee.laplace_scale(share)),
            _laplace(linear, size, guarantee.laplace_scale(1 - share)),
        )

    def fit(self, problem: Problem, examples: Examples, spending: Spending) -> Floats:
        """The minimiser of the noised polynomial."""
        moments = sum_moments(examples, signs=problem.classes > 0)
        upper = np.triu_indices(problem.size)
        polynomial = np.triu(moments.gram) + np.triu(moments.gram, 1)
        quadratic, linear = sensitivities(problem)
        noised = _released(polynomial[upper], quadratic, spending)
        half = np.zeros((problem.size, problem.size))
        half[upper] = noised / 2
        gram, cross = half + half.T, _released(2 * moments.cross, linear, spending) / 2
        solution = self._solve(gram, cross, _noise(problem, spending.mechanisms))
        return as_class_scores(2 * solution) if problem.classes else solution

    def _solve(self, gram: Floats, cross: Floats, noise: MomentNoise) -> Floats:
        if self.repair == "shrink":
            return shrunk_solution(gram, cross, noise)
        return regularised_solution(gram, cross, 4 * noise.diagonal)


def sensitivities(problem: Problem) -> tuple[float, float]:
    """Of the quadratic and the linear coefficients, L1, to one row that is added, removed or zeroed."""
    return problem.row_l1**2, 2 * problem.row_l1


def default_split(problem: Problem, guarantee: Guarantee) -> float:
    """The share of epsilon for the quadratic coefficients that minimises the expected excess loss.

    Where the number of rows is private 10,000 are assumed: with more the share would be a little larger.
    """
    examples = problem.examples or _ASSUMED_ROWS
    found = optimize.minimize_scalar(
        lambda share: math.log(planned_noise(problem, guarantee, share).variance(problem.size, examples)),
        bounds=(0.02, 0.98),
        method="bounded",
    )
    return float(found.x)


def planned_noise(problem: Problem, guarantee: Guarantee, share: float) -> MomentNoise:
    """The noise on the moments with this share of epsilon on the quadratic coefficients."""
    quadratic, linear = sensitivities(problem)
    scales = (float(guarantee.laplace_scale(part)) for part in (share, 1 - share))
    return _moment_noise(*(bound * scale for bound, scale in zip((quadratic, linear), scales, strict=True)))


def regularised_solution(gram: Floats, cross: Floats, ridge: float) -> Floats:
    """A ridge, and directions trimmed whose eigenvalue is still not above 0 (Zhang et al. 2012, section 6)."""
    values, vectors = np.linalg.eigh(gram + ridge * np.eye(len(cross)))
    kept = values > 0
    solution: Floats = vectors[:, kept] @ ((vectors[:, kept].T @ cross) / values[kept])
    return solution


def _moment_noise(quadratic_scale: float, linear_scale: float) -> MomentNoise:
    """From scales of Laplace noise on coefficients: off the diagonal, and for b, a coefficient is twice the moment."""
    root = math.sqrt(2)
    return MomentNoise(root * quadratic_scale, root * quadratic_scale / 2, root * linear_scale / 2)


def _noise(problem: Problem, mechanisms: tuple[Mechanism, ...]) -> MomentNoise:
    counts = (problem.size * (problem.size + 1) // 2, problem.size)
    scales = [
        float(mechanism.scale) * _step(bound, count) / UNIT
        for mechanism, bound, count in zip(mechanisms, sensitivities(problem), counts, strict=True)
    ]
    return _moment_noise(*scales)


def _step(sensitivity: float, coefficients: int) -> int:
    """How many units of a moment one step of the released grid has: a power of two."""
    steps = max(_LEAST_STEPS, _STEPS_A_COEFFICIENT * coefficients)
    return 1 << max(0, math.floor(math.log2(sensitivity * UNIT / steps)))


def _laplace(sensitivity: float, coefficients: int, scale: Fraction) -> DiscreteLaplace:
    """Noise on the grid's steps, for a bound of ``sensitivity`` and a scale for a bound of 1."""
    moved = grid_l1_sensitivity(sensitivity * UNIT, _step(sensitivity, coefficients), coefficients)
    return DiscreteLaplace(moved * scale, moved)


def _released(values: Integers, sensitivity: float, spending: Spending) -> Floats:
    """The values in units of z, rounded to the grid's steps in whole numbers, with noise."""
    step = _step(sensitivity, values.size)
    rounded = (values + step // 2) // step
    return spending.release(rounded).astype(np.float64) * (step / UNIT)
