"""Which method, by public facts alone."""

from tacit.core.validation import check_choice
from tacit.linear.adassp import AdaSSP
from tacit.linear.functional import Functional
from tacit.linear.guarantee import Guarantee
from tacit.linear.newton import Newton
from tacit.linear.problem import Method, Problem
from tacit.linear.shrinkage import expected_excess
from tacit.linear.sufficient import SufficientStatistics, moment_noise

METHODS = ("auto", "functional", "adassp", "sufficient", "newton")
_SPLITTABLE = ("functional", "sufficient")
_DELTA = 1e-6
_NEGLIGIBLE = 1e-4  # of excess loss, for targets in [-1, 1]


def default_delta(method: str) -> float:
    """What delta is where nothing was said: 0 for the functional mechanism, whose guarantee is pure, else 1e-6."""
    return 0.0 if method == "functional" else _DELTA


def choose_method(name: str, problem: Problem, guarantee: Guarantee, *, split: float | None = None) -> Method:
    """The method of a name; ``auto`` is the best for n, d, epsilon and delta.

    With delta 0 that is the functional mechanism, the only one with a pure guarantee. Else it is Newton's method, but
    where the number of rows is public and so large that noise on sufficient statistics is expected to cost less than
    1e-4: one pass is enough then, and nothing is cut. For classes, whose loss has no sufficient statistics, it is
    Newton's method. No data are looked at: the expectation is that of `tacit.linear.shrinkage`.

    Args:
        name: one of `METHODS`.
        problem, guarantee: the public facts.
        split: for ``functional`` and ``sufficient``, the share of the second moments.
    """
    check_choice("method", name, METHODS)
    if name == "auto":
        name = _best(problem, guarantee)
    if split is not None:
        check_choice("method", name, _SPLITTABLE, remedy="Only these have a split; leave split out.")
    if name == "functional":
        return Functional(split)
    if name == "sufficient":
        return SufficientStatistics(split)
    return AdaSSP() if name == "adassp" else Newton()


def _best(problem: Problem, guarantee: Guarantee) -> str:
    if guarantee.is_pure:
        return "functional"
    if problem.classes or problem.examples is None:
        return "newton"
    noise = moment_noise(SufficientStatistics().mechanisms(problem, guarantee))
    excess = expected_excess(noise, problem.size, problem.examples)
    return "sufficient" if excess < _NEGLIGIBLE else "newton"
