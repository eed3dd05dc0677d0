r"""How far the data-dependent cost of PATE can move when one teacher changes: its smooth sensitivity.

The cost at one order :math:`\lambda` is a sum over queries of functions of a single number each:

- the threshold test, a function of the highest count, which one moved vote moves by at most 1;
- GNMax, a function of q. With m classes write :math:`q = (m-1)\,\Phi(-g / (\sqrt2\sigma))`: g is the gap that, if all
  other classes share it, gives the same q. A moved vote changes every gap by at most 2, and
  :math:`\Phi(\Phi^{-1}(\cdot) + c)` is concave, so Jensen's inequality shows that **g moves by at most 2**.

g is cut into cells, and the cost in a cell is the bound at its lower edge, or at any higher edge where that is more.
This is a valid bound too, since q is only larger there, and it never rises with g: nothing has to be assumed about the
monotony of theorem 6, and what is said below holds for the very cost that is used.

The local sensitivity at distance t, after t teachers have changed, is the largest step within the window of values that
t moved votes can reach. Windows of neighbours are nested, so
:math:`S_\beta = \max_t e^{-\beta t} \sum_i LS_i(t)` is a :math:`\beta`-smooth bound (Nissim, Raskhodnikova and Smith
2007): at least the local sensitivity, and :math:`e^{\pm\beta}` apart at most between neighbours. The idea is that of
appendix B of Papernot et al. 2018; the windows are exact here.
"""

import dataclasses
import math
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy import special

from tacit.accounting.dominating import FloatArray
from tacit.accounting.pate.gaussian import rare_divergences, threshold_divergences
from tacit.accounting.pate.laplace import log_most_rare
from tacit.accounting.pate.votes import Votes, check_answered, check_baseline, check_votes, log_sum
from tacit.core.errors import InputError
from tacit.core.validation import check_count, check_positive

_CELLS_A_VOTE = 16
_REACH = 2 * _CELLS_A_VOTE + 1  # cells that one moved vote can cross
_OFF_EDGE = 1e-6  # gaps are often whole: no cell begins just there, where rounding would choose the cell


@dataclasses.dataclass(frozen=True)
class PrivateCost:
    """A data-dependent Rényi divergence with what its release needs: private, and it does not print its numbers.

    Costs at the same order and number of teachers add up.

    Attributes:
        order: the one order that the divergence is for; it must be chosen without a look at the votes.
        teachers: how many teachers voted.
        unsafe_divergence: the bound for the data set behind the votes.
        unsafe_sensitivities: how far one teacher can move the bound after t others have changed, for t = 0, 1, ...
        limit: the data-independent bound, which is public.
    """

    order: float
    teachers: int
    unsafe_divergence: float = dataclasses.field(repr=False)
    unsafe_sensitivities: FloatArray = dataclasses.field(repr=False, compare=False)
    limit: float

    def unsafe_smooth_sensitivity(self, beta: float) -> float:
        r"""The :math:`\beta`-smooth sensitivity of the divergence; private as well."""
        check_positive("beta", beta)
        changed = np.arange(len(self.unsafe_sensitivities))
        return float(np.max(np.exp(-beta * changed) * self.unsafe_sensitivities))

    def __add__(self, other: Self) -> Self:
        if (self.order, self.teachers) != (other.order, other.teachers):
            raise InputError(
                f"order={other.order:g}, teachers={other.teachers}: costs add up at one order and for the same "
                f"teachers, here {self.order:g} and {self.teachers}."
            )
        return dataclasses.replace(
            self,
            unsafe_divergence=self.unsafe_divergence + other.unsafe_divergence,
            unsafe_sensitivities=self.unsafe_sensitivities + other.unsafe_sensitivities,
            limit=self.limit + other.limit,
        )


def gnmax_cost(votes: npt.ArrayLike, sigma: float, order: float, *, teachers: int) -> PrivateCost:
    """The divergence of answering all the queries by GNMax, ready for `release_epsilon`."""
    counts = check_votes(votes, teachers)
    limit = _check_order(order) / check_positive("sigma", sigma) ** 2
    table = _gap_table(teachers, counts.shape[1], sigma, order)
    steps = np.maximum(_shifted(table, -_REACH) - table, table - _shifted(table, _REACH))
    rows, repeats = np.unique(-np.sort(-counts, axis=1), axis=0, return_counts=True)
    total, sensitivities = 0.0, np.zeros(teachers + 1)
    for row, repeat in zip(rows, repeats, strict=True):
        low, high = _gap_windows(row, sigma)
        cells = _cells(np.concatenate([low, high]), len(table)).reshape(2, -1)
        total += repeat * table[cells[0, 0]]
        sensitivities += repeat * _window_maxima(steps, *cells)
    return PrivateCost(order, teachers, float(total), sensitivities, limit * len(counts))


def threshold_cost(
    votes: npt.ArrayLike,
    threshold: float,
    sigma: float,
    order: float,
    *,
    teachers: int,
    baseline: npt.ArrayLike | None = None,
) -> PrivateCost:
    """The divergence of testing all the queries against a threshold, ready for `release_epsilon`."""
    counts = check_votes(votes, teachers)
    limit = _check_order(order) / (2 * check_positive("sigma", sigma) ** 2)
    highest = (counts - check_baseline(baseline, counts)).max(axis=1)
    total, sensitivities = 0.0, np.zeros(teachers + 1)
    for value, repeat in zip(*np.unique(highest, return_counts=True), strict=True):
        # All values within ``teachers`` moves, and one more on each side.
        reachable = int(value) + np.arange(-teachers - 1, teachers + 2)
        table = threshold_divergences(reachable, threshold, sigma, [order])[:, 0]
        rises = np.abs(np.diff(table))
        steps = np.maximum(rises[:-1], rises[1:])
        moved = np.arange(teachers + 1)
        total += repeat * table[teachers + 1]
        sensitivities += repeat * _window_maxima(steps, teachers - moved, teachers + moved)
    return PrivateCost(order, teachers, float(total), sensitivities, limit * len(counts))


def confident_gnmax_cost(
    votes: npt.ArrayLike,
    answered: npt.ArrayLike,
    *,
    threshold: float,
    sigma1: float,
    sigma2: float,
    order: float,
    teachers: int,
    baseline: npt.ArrayLike | None = None,
) -> PrivateCost:
    """The divergence of Confident-GNMax, interactive with a ``baseline``, ready for `release_epsilon`.

    Which queries were answered is public, so the cost is a function of the data for these very answers.
    """
    counts = check_votes(votes, teachers)
    flags = check_answered(answered, counts)
    tests = threshold_cost(counts, threshold, sigma1, order, teachers=teachers, baseline=baseline)
    return tests + gnmax_cost(counts[flags], sigma2, order, teachers=teachers)


def _gap_table(teachers: int, classes: int, sigma: float, order: float) -> FloatArray:
    """The cost in each cell of g, from 0 to the number of teachers; it never rises with g."""
    check_count("teachers", teachers)
    if classes == 1:
        return np.zeros(1)
    edges = np.arange(teachers * _CELLS_A_VOTE + 1) / _CELLS_A_VOTE
    log_q = math.log(classes - 1) + special.log_ndtr(-edges / (math.sqrt(2) * sigma))
    costs = rare_divergences(np.minimum(log_q, log_most_rare(classes)), sigma, [order])[:, 0]
    return np.asarray(np.maximum.accumulate(costs[::-1])[::-1])


def _gap_windows(row: Votes, sigma: float) -> tuple[FloatArray, FloatArray]:
    r"""The least and the greatest g after t = 0, 1, ..., teachers moved votes, for counts in falling order.

    Least: the plurality loses t votes and the others gain t. :math:`\Phi(-x)` is convex for x >= 0, so q is largest
    with all of them at the runner-up; once its gap may close, g is taken as 0. Greatest: the plurality gains t votes
    that the others lose, evenly from the top (water-filling), as convexity demands.
    """
    moved = np.arange(int(row.sum()) + 1.0)
    if len(row) == 1:
        return np.zeros_like(moved), np.zeros_like(moved)
    lead, others = (row[0] - row[1:]).astype(np.float64), row[1:].astype(np.float64)
    fallen = lead - moved[:, None]
    fallen[:, 0] -= moved
    low = np.where(fallen[:, 0] >= 0, _effective_gap(np.maximum(fallen, 0.0), sigma), 0.0)
    levels = (np.cumsum(others) - moved[:, None]) / np.arange(1.0, len(row))
    level = np.maximum(levels.max(axis=1), 0.0)
    gained = np.minimum(moved, others.sum())
    risen = row[0] + gained[:, None] - np.minimum(others, level[:, None])
    return low, np.maximum(_effective_gap(risen, sigma), low)


def _effective_gap(lead: FloatArray, sigma: float) -> FloatArray:
    """g: the gap that gives the same q if all other classes share it."""
    log_mean = log_sum(special.log_ndtr(-lead / (math.sqrt(2) * sigma))) - math.log(lead.shape[-1])
    return np.asarray(-math.sqrt(2) * sigma * special.ndtri_exp(log_mean))


def _cells(gap: FloatArray, cells: int) -> npt.NDArray[np.int64]:
    return np.clip(np.floor((gap - _OFF_EDGE) * _CELLS_A_VOTE).astype(np.int64), 0, cells - 1)


def _shifted(table: FloatArray, by: int) -> FloatArray:
    return np.asarray(table[np.clip(np.arange(len(table)) + by, 0, len(table) - 1)])


def _window_maxima(steps: FloatArray, low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]) -> FloatArray:
    """The largest step within each of the growing windows [low, high] around low[0]."""
    centre = int(low[0])
    left = np.maximum.accumulate(steps[centre::-1])
    right = np.maximum.accumulate(steps[centre:])
    return np.asarray(np.maximum(left[centre - np.minimum(low, centre)], right[np.maximum(high, centre) - centre]))


def _check_order(order: float) -> float:
    if not 1 < order < math.inf:
        raise InputError(f"order={order!r}: must be a finite number above 1.")
    return float(order)
