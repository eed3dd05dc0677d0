r"""AdaSSP: sufficient statistics with noise and a ridge that adapts to the smallest eigenvalue.

Three Gaussian releases with a third of the precision each: the smallest eigenvalue of :math:`A = \sum z z^\top`, A
itself, and :math:`b = \sum y z`. The ridge is :math:`\max(0, \sigma_A \sqrt{p \log(2 p^2 / \varrho)} -
\tilde\lambda_{\min})` with :math:`\varrho = 0.05`, where :math:`\tilde\lambda_{\min}` is the released eigenvalue less a
margin that it exceeds with probability :math:`1 - \delta / 6` at least.

Published with three guarantees of :math:`(\epsilon/3, \delta/3)` and the classical noise; here the same releases are
accounted as the one Gaussian that they compose to, which is tighter.

Reference: Wang, Revisiting differentially private linear regression, 2018, https://arxiv.org/abs/1803.02596,
algorithm 2.
"""

import dataclasses
import math
from typing import cast

import numpy as np

from tacit.linear.gaussian_moments import cross_mechanism, gram_mechanism, noised_by, release_gram, scale_of
from tacit.linear.guarantee import Guarantee, Mechanism, Spending
from tacit.linear.moments import UNIT, sum_moments
from tacit.linear.problem import Problem, as_class_scores, require_delta, require_two_classes
from tacit.linear.rows import Examples, Floats, Integers
from tacit.mechanisms import RoundedGaussian

_FAILURE = 0.05  # rho in the paper
_SOLVER_ERROR = 2.0**-12  # of two eigenvalues, in the units of z: above what float64 loses on a billion rows


@dataclasses.dataclass(frozen=True)
class AdaSSP:
    """Linear regression, or least squares on two classes, as Wang published it but for the account."""

    name: str = dataclasses.field(default="adassp", init=False)

    def describe(self) -> str:
        """For statements."""
        return "AdaSSP, Gaussian noise on second and cross moments and on the smallest eigenvalue"

    def mechanisms(self, problem: Problem, guarantee: Guarantee) -> tuple[Mechanism, ...]:
        """Gaussian noise on the smallest eigenvalue, the second moments and the cross moments.

        By Weyl's inequality a row moves the eigenvalue by at most its squared norm.
        """
        require_delta(self.name, guarantee)
        require_two_classes(self.name, problem)
        share = 1 / 3
        return (
            noised_by(problem.row_l2**2 + _SOLVER_ERROR, guarantee, share),
            gram_mechanism(problem, guarantee, share),
            cross_mechanism(problem, guarantee, share),
        )

    def fit(self, problem: Problem, examples: Examples, spending: Spending) -> Floats:
        """Ridge regression on the noised moments."""
        moments = sum_moments(examples, signs=problem.classes > 0)
        on_smallest, on_gram, _ = (scale_of(cast(RoundedGaussian, each)) for each in spending.mechanisms)
        smallest = spending.release(_smallest_eigenvalue(moments.gram))[0] / UNIT
        gram = release_gram(moments.gram, spending)
        cross = spending.release(moments.cross) / UNIT
        size = problem.size
        surely = max(0.0, smallest - on_smallest * math.sqrt(math.log(6 / spending.guarantee.delta)))
        ridge = max(0.0, on_gram * math.sqrt(size * math.log(2 * size**2 / _FAILURE)) - surely)
        solution: Floats = np.linalg.solve(gram + ridge * np.eye(size), cross)
        return as_class_scores(2 * solution) if problem.classes else solution


def _smallest_eigenvalue(gram: Integers) -> Integers:
    return np.array([math.floor(float(np.linalg.eigvalsh(gram.astype(np.float64))[0]))], dtype=np.int64)
