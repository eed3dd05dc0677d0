r"""LNMax: the plurality of the votes under Laplace noise, and its data-dependent moments.

Papernot, Abadi, Erlingsson, Goodfellow and Talwar, *Semi-supervised knowledge transfer for deep learning from private
training data*, 2017, https://arxiv.org/abs/1610.05755.
"""

import math

import numpy as np
import numpy.typing as npt

from tacit.accounting.dominating import FloatArray
from tacit.accounting.pate.votes import PrivateEpsilon, check_orders, check_votes, gaps, log1mexp, log_sum
from tacit.core.errors import InputError
from tacit.core.validation import check_open_unit, check_positive

PUBLISHED_ORDERS: FloatArray = np.arange(1.0, 9.0)


def laplace_log_rarity(votes: npt.ArrayLike, gamma: float, *, teachers: int | None = None) -> FloatArray:
    r"""log q for each query: q bounds the chance that LNMax answers anything but the plurality j* (lemma 4).

    .. math:: q = \sum_{j \ne j^*} \frac{2 + \gamma (n_{j^*} - n_j)}{4 \exp(\gamma (n_{j^*} - n_j))},

    at most 1 - 1/classes, since no answer is likelier than the plurality. Minus infinity with one class. Depends on
    the votes, hence private.
    """
    counts = check_votes(votes, teachers)
    lead = check_positive("gamma", gamma) * gaps(counts)
    return np.minimum(log_sum(np.log(2 + lead) - math.log(4) - lead), log_most_rare(counts.shape[1]))


def laplace_votes_moments(
    votes: npt.ArrayLike,
    gamma: float,
    orders: npt.ArrayLike = PUBLISHED_ORDERS,
    *,
    teachers: int | None = None,
) -> FloatArray:
    r"""The log moments of LNMax for each query, ``[queries, orders]``; those of several queries add up.

    Every query adds noise of density :math:`\frac\gamma2 e^{-\gamma|x|}` to every count and answers the largest. A
    moved vote makes it :math:`(2\gamma, 0)`-DP, and the log moment at :math:`l` is at most the least of

    - :math:`2\gamma l` (pure privacy) and :math:`2\gamma^2 l (l+1)` (Bun and Steinke 2016), whatever the votes are;
    - :math:`\log\left((1-q) \left(\frac{1-q}{1-e^{2\gamma}q}\right)^l + q e^{2\gamma l}\right)` where
      :math:`q < \frac{e^{2\gamma} - 1}{e^{4\gamma} - 1}` (theorem 3), with q of `laplace_log_rarity`.

    Guarantee: for the data set D behind the votes and every neighbour D',
    :math:`E_{o \sim M(D)} (P[M(D)=o] / P[M(D')=o])^l \le e^{\alpha(l)}`. It speaks of this D only, and depends on it:
    the numbers are private. The Rényi divergence of order l + 1 is at most :math:`\alpha(l) / l`.

    Args:
        votes: counts ``[queries, classes]``; every row adds up to the number of teachers.
        gamma: the inverse scale of the noise.
        orders: the l > 0; the paper takes 1 to 8, and more of them help small budgets.
        teachers: how many teachers voted, as a check.
    """
    log_q = laplace_log_rarity(votes, gamma, teachers=teachers)[:, None]
    moments = check_orders("orders", orders, above=0.0)
    pure = 2 * gamma
    bounded = np.minimum(pure * moments, pure**2 / 2 * moments * (moments + 1))
    is_rare = log_q < -np.logaddexp(0.0, pure)
    log_q = np.where(is_rare, log_q, -np.inf)
    usual = log1mexp(log_q) * (moments + 1) - moments * log1mexp(log_q + pure)
    by_rarity = np.logaddexp(usual, log_q + pure * moments)
    return np.where(is_rare, np.clip(by_rarity, 0.0, bounded), bounded)


def moments_epsilon(log_moments: npt.ArrayLike, orders: npt.ArrayLike, delta: float) -> float:
    r"""Epsilon at ``delta`` from added up log moments: :math:`\min_l (\alpha(l) + \log(1/\delta)) / l`."""
    moments = check_orders("orders", orders, above=0.0)
    total = np.asarray(log_moments, dtype=np.float64)
    if total.shape != moments.shape:
        raise InputError(f"log_moments of shape {total.shape}: must be one for each of the {len(moments)} orders.")
    check_open_unit("delta", delta)
    return float(np.min((total - math.log(delta)) / moments)) if total.any() else 0.0


def lnmax_epsilon(
    votes: npt.ArrayLike,
    gamma: float,
    delta: float,
    orders: npt.ArrayLike = PUBLISHED_ORDERS,
    *,
    teachers: int | None = None,
) -> PrivateEpsilon:
    """The data-dependent epsilon of answering all the queries by LNMax, as published in 2017."""
    total = laplace_votes_moments(votes, gamma, orders, teachers=teachers).sum(axis=0)
    return PrivateEpsilon(moments_epsilon(total, orders, delta), delta)


def log_most_rare(classes: int) -> float:
    """log(1 - 1/classes): the largest chance that the likeliest of so many answers is not given."""
    return math.log1p(-1 / classes) if classes > 1 else -math.inf
