r"""Sufficient statistics with Gaussian noise: one look at the second moments, one at the cross moments.

Both are Gaussian mechanisms on all rows, so their composition is one Gaussian, accounted exactly. With sensitivities
:math:`\Delta_A, \Delta_b` and shares s and 1 - s of the precision :math:`z^{-2}`, the noise that acts on a coefficient
has variance :math:`V \propto \Delta_b^2 / (1 - s) + t^2 \Delta_A^2 / s` with t the norm of the coefficients (see
`tacit.linear.shrinkage`), which is least at :math:`s / (1 - s) = t \Delta_A / \Delta_b`.

Vu and Slavkovic 2009 and Foulds et al. 2016 perturb the same statistics; what is new here is public centring, the
joint account, the split and the Bayes rule in the place of a ridge.
"""

import dataclasses
import math
from typing import cast

from tacit.core.validation import check_open_unit
from tacit.linear.gaussian_moments import (
    cross_mechanism,
    gram_mechanism,
    gram_sensitivity,
    release_gram,
    scale_of,
)
from tacit.linear.guarantee import Guarantee, Mechanism, Spending
from tacit.linear.moments import UNIT, sum_moments
from tacit.linear.problem import Problem, as_class_scores, require_delta, require_two_classes
from tacit.linear.rows import Examples, Floats
from tacit.linear.shrinkage import NORM_SQUARE, MomentNoise, shrunk_solution
from tacit.mechanisms import RoundedGaussian


@dataclasses.dataclass(frozen=True)
class SufficientStatistics:
    """Linear regression, or least squares on two classes, from one pass over the rows.

    Args:
        split: the second moments' share of the precision; None for the default above.
    """

    split: float | None = None
    name: str = dataclasses.field(default="sufficient", init=False)

    def __post_init__(self) -> None:
        if self.split is not None:
            check_open_unit("split", self.split, remedy="It is the share of the second moments.")

    def describe(self) -> str:
        """For statements."""
        return "Gaussian noise on second and cross moments"

    def share(self, problem: Problem) -> float:
        """The second moments' share."""
        if self.split is not None:
            return self.split
        odds = math.sqrt(NORM_SQUARE) * gram_sensitivity(problem) / problem.row_l2
        return odds / (1 + odds)

    def mechanisms(self, problem: Problem, guarantee: Guarantee) -> tuple[Mechanism, ...]:
        """Gaussian noise on the second moments, then on the cross moments."""
        require_delta(self.name, guarantee)
        require_two_classes(self.name, problem)
        share = self.share(problem)
        return gram_mechanism(problem, guarantee, share), cross_mechanism(problem, guarantee, 1 - share)

    def fit(self, problem: Problem, examples: Examples, spending: Spending) -> Floats:
        """The posterior mean of the least-squares coefficients."""
        moments = sum_moments(examples, signs=problem.classes > 0)
        gram = release_gram(moments.gram, spending)
        cross = spending.release(moments.cross) / UNIT
        solution = shrunk_solution(gram, cross, moment_noise(spending.mechanisms))
        return as_class_scores(2 * solution) if problem.classes else solution


def moment_noise(mechanisms: tuple[Mechanism, ...]) -> MomentNoise:
    """The noise of both releases."""
    on_gram, on_cross = (scale_of(cast(RoundedGaussian, mechanism)) for mechanism in mechanisms)
    return MomentNoise(on_gram, on_gram, on_cross)
