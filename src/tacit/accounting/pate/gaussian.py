r"""GNMax and the threshold test: votes under Gaussian noise, and their data-dependent Rényi divergences.

Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson, *Scalable private learning with PATE*, 2018,
https://arxiv.org/abs/1802.08908. A divergence here is :math:`D_\lambda(M(D) \| M(D'))` at its largest over the
neighbours D' of the one data set D behind the votes: a bound that depends on D, and is private like D.
"""

import math

import numpy as np
import numpy.typing as npt
from dp_accounting.rdp import rdp_privacy_accountant
from scipy import special

from tacit.accounting.dominating import FloatArray
from tacit.accounting.pate.laplace import log_most_rare
from tacit.accounting.pate.votes import (
    PrivateEpsilon,
    check_answered,
    check_baseline,
    check_orders,
    check_votes,
    gaps,
    log1mexp,
    log_sum,
)
from tacit.accounting.renyi import ORDERS
from tacit.core.validation import check_open_unit, check_positive

_RAREST = -1e200  # a log probability below which all is certain, and above which nothing overflows


def gaussian_log_rarity(votes: npt.ArrayLike, sigma: float, *, teachers: int | None = None) -> FloatArray:
    r"""log q for each query: q bounds the chance that GNMax answers anything but the plurality (proposition 7).

    .. math:: q = \sum_{j \ne j^*} \frac12 \operatorname{erfc}\left(\frac{n_{j^*} - n_j}{2 \sigma}\right),

    at most 1 - 1/classes. Minus infinity with one class. Private.
    """
    counts = check_votes(votes, teachers)
    log_tails = special.log_ndtr(-gaps(counts) / (math.sqrt(2) * check_positive("sigma", sigma)))
    return np.minimum(log_sum(log_tails), log_most_rare(counts.shape[1]))


def gnmax_divergences(
    votes: npt.ArrayLike, sigma: float, orders: npt.ArrayLike = ORDERS, *, teachers: int | None = None
) -> FloatArray:
    r"""Rényi divergences of GNMax for each query, ``[queries, orders]``; those of several queries add up.

    Every query adds :math:`N(0, \sigma^2)` to every count and answers the largest. A moved vote moves the counts by
    :math:`\sqrt2`, so the divergence is at most :math:`\lambda / \sigma^2` whatever the votes are (proposition 8), and
    less where the plurality is nearly certain: see `rare_divergences`.

    Args:
        votes: counts ``[queries, classes]``; every row adds up to the number of teachers.
        sigma: the standard deviation of the noise on every count.
        orders: the orders above 1; by default the grid of `RenyiAccountant`, so that its divergences can be added.
        teachers: how many teachers voted, as a check.
    """
    log_q = gaussian_log_rarity(votes, sigma, teachers=teachers)
    return rare_divergences(log_q, sigma, orders)


def rare_divergences(log_q: npt.ArrayLike, sigma: float, orders: npt.ArrayLike) -> FloatArray:
    r"""Rényi divergences ``[queries, orders]`` of GNMax where the plurality is missed with chance at most q.

    Theorem 6: a mechanism with divergences :math:`\epsilon_1` at :math:`\mu_1 \ge \lambda` and :math:`\epsilon_2` at
    :math:`\mu_2 > 1` has at :math:`\lambda` at most

    .. math:: \frac{1}{\lambda-1} \log\left((1-q) A^{\lambda-1} + q B^{\lambda-1}\right), \quad
              A = \frac{1-q}{1 - (q e^{\epsilon_2})^{1 - 1/\mu_2}}, \quad B = \frac{e^{\epsilon_1}}{q^{1/(\mu_1-1)}},

    if :math:`q \le e^{(\mu_2-1)\epsilon_2} / (\frac{\mu_1}{\mu_1-1} \frac{\mu_2}{\mu_2-1})^{\mu_2}`. Here
    :math:`\epsilon_i = \mu_i / \sigma^2`, with :math:`\mu_2 = \sigma\sqrt{\log(1/q)}` and :math:`\mu_1 = \mu_2 + 1`
    (proposition 10). Where a condition fails, or where it is less, :math:`\lambda / \sigma^2` stands.
    """
    log_q = np.maximum(np.atleast_1d(np.asarray(log_q, dtype=np.float64)), _RAREST)[:, None]
    order = check_orders("orders", orders, above=1.0)
    variance = check_positive("sigma", sigma) ** 2
    mu2 = sigma * np.sqrt(-log_q)
    usable = mu2 > 1
    mu2 = np.where(usable, mu2, 2.0)
    log_limit = (mu2 - 1) * mu2 / variance - mu2 * (np.log1p(1 / mu2) + np.log1p(1 / (mu2 - 1)))
    usable = usable & (log_q <= log_limit) & (order <= mu2 + 1)
    log_q = np.where(usable, log_q, _RAREST)
    log_usual = log1mexp(log_q)
    log_a = log_usual - log1mexp((log_q + mu2 / variance) * (1 - 1 / mu2))
    log_b = (mu2 + 1) / variance - log_q / mu2
    moment = np.logaddexp(log_usual + (order - 1) * log_a, log_q + (order - 1) * log_b)
    independent = order / variance
    return np.where(usable, np.clip(moment / (order - 1), 0.0, independent), independent)


def threshold_divergences(
    highest: npt.ArrayLike, threshold: float, sigma: float, orders: npt.ArrayLike = ORDERS
) -> FloatArray:
    r"""Rényi divergences ``[queries, orders]`` of the test whether the highest count plus noise reaches a threshold.

    A moved vote moves the highest count x by at most 1. The test passes with chance
    :math:`p(x) = \Phi((x - T) / \sigma)`, which rises with x, and the divergence of two coins grows with their
    distance, so

    .. math:: \max_{x' = x \pm 1} \frac{1}{\lambda-1} \log\left(
              p(x)^\lambda p(x')^{1-\lambda} + (1-p(x))^\lambda (1-p(x'))^{1-\lambda}\right)

    is **exactly** the largest divergence between the test and its neighbours, never above
    :math:`\lambda / (2 \sigma^2)` and never above theorem 6 at q = min(p, 1 - p), which the paper takes.

    Args:
        highest: the highest count of each query, less a public baseline where there is one.
        threshold: T, the number to reach.
        sigma: the standard deviation of the noise on the highest count.
        orders: the orders above 1.
    """
    order = check_orders("orders", orders, above=1.0)
    counts = np.atleast_1d(np.asarray(highest, dtype=np.float64))[:, None]
    excess, moved = (counts - threshold) / check_positive("sigma", sigma), 1 / sigma
    up, down = (_coin_divergences(excess, excess + step, order) for step in (moved, -moved))
    return np.clip(np.maximum(up, down), 0.0, order / (2 * sigma**2))


def confident_gnmax_divergences(
    votes: npt.ArrayLike,
    answered: npt.ArrayLike,
    *,
    threshold: float,
    sigma1: float,
    sigma2: float,
    orders: npt.ArrayLike = ORDERS,
    baseline: npt.ArrayLike | None = None,
    teachers: int | None = None,
) -> FloatArray:
    r"""Rényi divergences of Confident-GNMax for each query asked, ``[queries, orders]``; they add up.

    Every query is tested: :math:`\max_j n_j + N(0, \sigma_1^2) \ge T`. Those that pass are answered by GNMax with
    :math:`\sigma_2`; the others cost the test alone. Interactive Confident-GNMax tests
    :math:`\max_j (n_j - b_j)` instead, for a public baseline b such as the student's own predictions times the number
    of teachers, rounded to whole votes; a query that the student may answer itself counts as not answered.

    Args:
        votes: counts ``[queries, classes]`` of every query that was asked.
        answered: which of them passed the test; it was published with the answers.
        threshold, sigma1: T and the noise of the test.
        sigma2: the noise of the answer.
        orders: the orders above 1.
        baseline: whole numbers ``[queries, classes]``, public.
        teachers: how many teachers voted, as a check.
    """
    counts = check_votes(votes, teachers)
    flags = check_answered(answered, counts)
    highest = (counts - check_baseline(baseline, counts)).max(axis=1)
    total = threshold_divergences(highest, threshold, sigma1, orders)
    total[flags] += gnmax_divergences(counts[flags], sigma2, orders)
    return total


def divergences_epsilon(divergences: npt.ArrayLike, delta: float, orders: npt.ArrayLike = ORDERS) -> float:
    """Epsilon at ``delta`` from added up Rényi divergences, at the best order (Canonne, Kamath and Steinke 2020)."""
    order = check_orders("orders", orders, above=1.0)
    check_open_unit("delta", delta)
    total = np.asarray(divergences, dtype=np.float64)
    return float(rdp_privacy_accountant.compute_epsilon(order, total, delta)[0]) if total.any() else 0.0


def gnmax_epsilon(votes: npt.ArrayLike, sigma: float, delta: float, *, teachers: int | None = None) -> PrivateEpsilon:
    """The data-dependent epsilon of answering all the queries by GNMax."""
    total = gnmax_divergences(votes, sigma, teachers=teachers).sum(axis=0)
    return PrivateEpsilon(divergences_epsilon(total, delta), delta)


def confident_gnmax_epsilon(
    votes: npt.ArrayLike,
    answered: npt.ArrayLike,
    delta: float,
    *,
    threshold: float,
    sigma1: float,
    sigma2: float,
    baseline: npt.ArrayLike | None = None,
    teachers: int | None = None,
) -> PrivateEpsilon:
    """The data-dependent epsilon of testing all the queries and answering some: see `confident_gnmax_divergences`."""
    each = confident_gnmax_divergences(
        votes,
        answered,
        threshold=threshold,
        sigma1=sigma1,
        sigma2=sigma2,
        baseline=baseline,
        teachers=teachers,
    )
    return PrivateEpsilon(divergences_epsilon(each.sum(axis=0), delta), delta)


def _coin_divergences(excess: FloatArray, other: FloatArray, order: FloatArray) -> FloatArray:
    """Rényi divergences of a coin that shows heads with chance Phi(excess) from one with chance Phi(other)."""
    heads = order * special.log_ndtr(excess) + (1 - order) * special.log_ndtr(other)
    tails = order * special.log_ndtr(-excess) + (1 - order) * special.log_ndtr(-other)
    return np.asarray(np.logaddexp(heads, tails) / (order - 1))
