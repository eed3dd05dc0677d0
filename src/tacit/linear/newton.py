r"""Newton's method with noise: one noised Hessian, then gradients in coordinates in which it is the identity.

1. The second moments :math:`A = \sum z z^\top` are released with Gaussian noise. :math:`\hat A` is its nearest positive
   semidefinite form plus a ridge of the noise's own size, :math:`\sigma_A \sqrt p`, and :math:`W = (\hat A / \hat
   n)^{-1/2}` with the released count :math:`\hat n`.
2. Each step releases the sum of the gradients of all rows in these coordinates, :math:`u\, r` with :math:`u = W z` and
   the residual r, each cut to norm :math:`C = \sqrt p`, and moves by it. A row has :math:`\|u\|^2 = p` on average, and
   targets lie within 1 of their middle, so that few rows are cut.

Moments that noise has spoilt only slow a step down; they do not bias where the steps lead. Each step corrects the noise
of those before it, so that the last ones get more of the budget, by a fixed ratio. Cutting does leave a bias of its own
where residuals are lopsided, which does not vanish as n grows.

For classes the loss is that of logistic (softmax) regression, whose Hessian is at most half of A for each class
(Böhning 1992); steps are twice as long. The gradient has one column a class.

All releases are Gaussian mechanisms on all rows, and accounted as the one Gaussian that they compose to.

**A row's gradient is a function of that row** and of what was released, to the last bit: it must not depend on which
rows stand beside it, or one row that goes would move the others by more than any sensitivity covers. Products of rows
with W and with the coefficients are therefore exact, whatever their order: rows are whole numbers, and W and the
coefficients, which are public, are put on a grid (`on_exact_grid`) on which all sums of products fit float64. Norms and
sums over classes are taken column by column; all else works on single numbers.

References: Avella-Medina, Bradshaw, Loh 2023, Differentially private inference via noisy optimization,
https://arxiv.org/abs/2103.11003; Ganesh, Haghifam, Steinke, Thakurta 2023, Faster differentially private convex
optimization via second-order methods, https://arxiv.org/abs/2305.13209 (the quadratic upper bound on the Hessian).
Steps and shares were chosen on generated tables, see ``tacit.benchmarking.linear``. C was not: on those, whose errors
are symmetric, half of it does better, but it would bias a table whose errors are lopsided.
"""

import dataclasses
import math
from typing import cast

import numpy as np

from tacit.core.validation import check_count, check_open_unit, check_positive
from tacit.linear.gaussian_moments import gram_mechanism, release_gram, scale_of
from tacit.linear.guarantee import Guarantee, Mechanism, Spending
from tacit.linear.moments import sum_moments
from tacit.linear.problem import Problem, require_delta
from tacit.linear.rows import RESOLUTION, Examples, Floats, Integers, row_norms
from tacit.mechanisms import RoundedGaussian

GRADIENT_UNIT = 1 << 20
_ENTRIES_AT_ONCE = 1 << 20
_EXACT_BITS = 53 - 15  # what a product with an entry of a row, at most 2^15, leaves of float64
_BELOW_ONE = 1 - 2.0**-32  # more than what cutting a gradient can lose to rounding
_REGRESSION_STEPS, _REGRESSION_GROWTH = 4, 3.0
_CLASSIFICATION_STEPS, _CLASSIFICATION_GROWTH = 12, 1.4  # the bound on the Hessian makes steps short


@dataclasses.dataclass(frozen=True)
class Newton:
    """Linear regression, or classification by logistic regression, from a few passes over the rows.

    Args:
        steps: how many gradients; 4 for a regression and 12 for a classification unless told.
        gram_share: the second moments' share of the precision.
        growth: how much more precision each gradient has than the one before; 3 and 1.4 unless told.
        cut: C over the root of p.
    """

    steps: int | None = None
    gram_share: float = 0.3
    growth: float | None = None
    cut: float = 1.0
    name: str = dataclasses.field(default="newton", init=False)

    def __post_init__(self) -> None:
        if self.steps is not None:
            check_count("steps", self.steps)
        check_open_unit("gram_share", self.gram_share)
        if self.growth is not None:
            check_positive("growth", self.growth)
        check_positive("cut", self.cut)

    def describe(self) -> str:
        """For statements."""
        return "a noised Newton method, Gaussian noise on second moments and gradients"

    def mechanisms(self, problem: Problem, guarantee: Guarantee) -> tuple[Mechanism, ...]:
        """Gaussian noise on the second moments and on each gradient."""
        require_delta(self.name, guarantee)
        bound = math.ceil(self._bound(problem) * GRADIENT_UNIT)
        gradients = tuple(
            RoundedGaussian(guarantee.noise_multiplier(share) * bound, bound)
            for share in self._gradient_shares(problem)
        )
        return (gram_mechanism(problem, guarantee, self.gram_share), *gradients)

    def fit(self, problem: Problem, examples: Examples, spending: Spending) -> Floats:
        """The last step's coefficients."""
        on_gram = scale_of(cast(RoundedGaussian, spending.mechanisms[0]))
        gram = release_gram(sum_moments(examples).gram, spending)
        count = max(float(gram[0, 0]), 1.0)
        whitening = on_exact_grid(_whitening(gram / count, on_gram * math.sqrt(problem.size) / count))
        length = 2.0 if problem.classes else 1.0
        coefficients = np.zeros((problem.size, max(problem.classes, 1)))
        for _ in spending.mechanisms[1:]:
            gradient = self._gradient_sum(problem, examples, whitening, coefficients)
            noised = spending.release(gradient) / (GRADIENT_UNIT * count)
            coefficients = on_exact_grid(coefficients + length * (whitening @ noised))
        return coefficients if problem.classes else coefficients[:, 0]

    def _bound(self, problem: Problem) -> float:
        return self.cut * math.sqrt(problem.size)

    def _gradient_shares(self, problem: Problem) -> Floats:
        """Each gradient's share of the precision."""
        steps = self.steps or (_CLASSIFICATION_STEPS if problem.classes else _REGRESSION_STEPS)
        growth = self.growth or (_CLASSIFICATION_GROWTH if problem.classes else _REGRESSION_GROWTH)
        weights = growth ** np.arange(steps, dtype=np.float64)
        shares: Floats = (1 - self.gram_share) * weights / weights.sum()
        return shares

    def _gradient_sum(self, problem: Problem, examples: Examples, whitening: Floats, coefficients: Floats) -> Integers:
        """The exact sum of all rows' gradients, each cut to the bound and put on the grid towards zero."""
        total = np.zeros(coefficients.shape, dtype=np.int64)
        rows = max(1, _ENTRIES_AT_ONCE // coefficients.size)
        for block in examples():
            for start in range(0, len(block.targets), rows):
                design = block.design[start : start + rows] / RESOLUTION  # exact, as its products are
                targets = block.targets[start : start + rows]
                residuals = residuals_of(targets, design @ coefficients, classes=problem.classes)
                gradients = cut_gradients(design @ whitening, residuals, self._bound(problem))
                total += gradients.sum(axis=0).astype(np.int64)  # exact: whole numbers far below 2^53
        return total


def on_exact_grid(weights: Floats) -> Floats:
    """Weights of p rows, rounded so that the product of a row of whole numbers with them has no rounding error.

    Entries of a row are at most 2^15 (`RESOLUTION` times 2). The grid is a power of two, for which p products of 2^15
    with the largest weight add up to at most 2^53 grid units, so that every partial sum is exact in any order. Weights
    keep 38 bits less the logarithm of p.
    """
    largest = float(np.abs(weights).max())
    if largest == 0:
        return weights
    bits = _EXACT_BITS - math.ceil(math.log2(len(weights)))
    step = 2.0 ** (math.frexp(largest)[1] - bits)
    return np.asarray(np.round(weights / step) * step)


def cut_gradients(rows: Floats, residuals: Floats, bound: float) -> Floats:
    """Each row's gradient, (rows, p, columns), of norm at most ``bound`` in `GRADIENT_UNIT`, in whole numbers.

    A row's gradient is the product of a row and its residuals, and so is its norm.
    """
    norms = row_norms(rows) * row_norms(residuals)
    factors = np.minimum(1.0, bound / np.maximum(norms, bound / 2)) * (_BELOW_ONE * GRADIENT_UNIT)
    gradients: Floats = np.trunc(rows[:, :, None] * (residuals * factors[:, None])[:, None, :])
    return gradients


def residuals_of(targets: Integers, scores: Floats, *, classes: int) -> Floats:
    """(rows, columns): target less prediction, or one less probability for the true class."""
    if not classes:
        return targets[:, None] / RESOLUTION - scores
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    total = np.zeros(len(weights))
    for column in weights.T:
        total += column
    residuals: Floats = -weights / total[:, None]
    residuals[np.arange(len(residuals)), targets] += 1
    return residuals


def _whitening(covariance: Floats, ridge: float) -> Floats:
    """The inverse root of the nearest positive semidefinite form plus a ridge; symmetric."""
    values, vectors = np.linalg.eigh(covariance)
    whitening: Floats = (vectors / np.sqrt(np.maximum(values, 0.0) + ridge)) @ vectors.T
    return whitening
