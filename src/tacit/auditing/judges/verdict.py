"""What a judge says, and the level at which it speaks."""

import dataclasses
import math

import numpy as np
import numpy.typing as npt
from scipy import stats

FALSE_ACCUSATION = 1e-10
"""The chance that a judge accuses a correct program, at most: so small that judges can sit among ordinary tests."""

Numbers = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One judge's answer.

    Attributes:
        judge: who says it.
        accused: whether what was seen contradicts the plan.
        finding: one sentence with the figures that decided, or why nothing was.
        judged: whether anything was seen; where not, nobody is accused and nothing has passed.
    """

    judge: str
    accused: bool
    finding: str
    judged: bool = True

    def __str__(self) -> str:
        passed = "passed" if self.judged else "not judged"
        return f"{self.judge}: {'accused' if self.accused else passed}, {self.finding}"


class Evidence:
    """Several tests of one promise. All of them together accuse a correct program with chance `FALSE_ACCUSATION`.

    Each p-value is exact or an upper bound, and is multiplied by the number of tests (Bonferroni), so that tests may
    depend on one another.
    """

    def __init__(self) -> None:
        self._found: list[tuple[float, str]] = []
        self._tests = 0

    def add(self, what: str, p_value: float, tests: int = 1) -> None:
        """The result of a test, or the smallest p-value of several."""
        self._tests += tests
        self._found.append((1.0 if math.isnan(p_value) else p_value, what))

    def verdict(self, judge: str) -> Verdict:
        """Accuses if the smallest p-value is too small for as many tests."""
        p_value, what = min(self._found)
        corrected = min(1.0, p_value * self._tests)
        finding = f"{what} (p = {corrected:.3g} of {self._tests} tests together)"
        return Verdict(judge, corrected < FALSE_ACCUSATION, finding)


def scale_p_value(noise: Numbers, scale: float) -> float:
    r"""Whether numbers are as large as N(0, scale²) makes them: :math:`\sum x^2 / s^2` is chi-square, two-sided."""
    if not np.isfinite(noise).all():
        return 0.0
    statistic = float(np.square(noise / scale).sum())
    return float(2 * min(stats.chi2.cdf(statistic, noise.size), stats.chi2.sf(statistic, noise.size)))


def missed_scale(factor: float, numbers: int, tests: int = 1) -> float:
    """The chance that `scale_p_value` does not accuse noise that is so many times too large, among so many tests."""
    level = FALSE_ACCUSATION / tests / 2
    low, high = stats.chi2.ppf(level, numbers), stats.chi2.isf(level, numbers)
    return float(stats.chi2.cdf(high / factor**2, numbers) - stats.chi2.cdf(low / factor**2, numbers))


def shape_p_value(noise: Numbers, scale: float) -> float:
    r"""Whether numbers have the distribution N(0, scale²): a bound on the p-value of Kolmogorov's statistic.

    :math:`P[\sup |F_n - F| > D] \le 2 e^{-2 n D^2}` for every n (Massart 1990).
    """
    if not np.isfinite(noise).all():
        return 0.0
    distance = float(stats.kstest(noise.ravel() / scale, stats.norm.cdf, method="asymp").statistic)
    return min(1.0, 2 * math.exp(-2 * noise.size * distance**2))


def alike_p_values(first: Numbers, second: Numbers) -> Numbers:
    r"""Whether rows point the same way: for each row of one and each of the other, a p-value ``[first, second]``.

    The cosine r between independent Gaussian vectors of n numbers has
    :math:`r \sqrt{(n - 1) / (1 - r^2)}` distributed by Student's t with n - 1 degrees of freedom, exactly. A row of
    zeros points nowhere, and is not alike to any.
    """
    rows, columns = (_unit(matrix) for matrix in (first, second))
    cosines = np.clip(rows @ columns.T, -1, 1)
    freedom = first.shape[1] - 1
    with np.errstate(divide="ignore"):
        statistics = np.abs(cosines) * np.sqrt(freedom / (1 - cosines**2))
    found: Numbers = 2 * stats.t.sf(statistics, freedom)
    return found


def _unit(rows: Numbers) -> Numbers:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Numbers = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return unit


def count_p_value(count: int, trials: int, probability: float) -> float:
    """Whether so many of independent trials succeed: exact binomial, two-sided."""
    below, above = stats.binom.cdf(count, trials, probability), stats.binom.sf(count - 1, trials, probability)
    return float(min(1.0, 2 * min(below, above)))
