"""Slow and obvious: the exact output distribution of "run K times, return the best" on a few outcomes."""

import math

import numpy as np

from tacit.accounting.selection import Poisson, TrialCount


def probabilities_of_counts(trials: TrialCount, most: int) -> np.ndarray:
    """P[K = 0], ..., P[K = most], from the definition."""
    if isinstance(trials, Poisson):
        steps = [trials.mean / k for k in range(1, most + 1)]
        return math.exp(-trials.mean) * np.cumprod([1.0, *steps])
    shape, gamma = trials.shape, trials.gamma
    if shape == 0:
        return np.array([0.0, *((1 - gamma) ** k / (k * math.log(1 / gamma)) for k in range(1, most + 1))])
    steps = [(1 - gamma) * (k + shape) / (k + 1) for k in range(most)]
    return np.array([0.0, *(np.cumprod(steps) / (gamma**-shape - 1))])


def best_of(outcomes: np.ndarray, trials: TrialCount, most: int = 3000) -> np.ndarray:
    """The distribution of the best; outcomes are in ascending order, and K = 0 is an outcome of its own, put last."""
    counts = probabilities_of_counts(trials, most)
    assert counts.sum() > 1 - 1e-9  # else the enumeration is too short to say anything
    up_to = np.cumsum(outcomes)
    k = np.arange(1, most + 1)
    # The chance that the best of k is y, F(y)^k - F(below y)^k, without the cancellation for rare outcomes.
    with np.errstate(divide="ignore"):
        rare = [-np.expm1(k * np.log1p(-min(share / high, 1.0))) for share, high in zip(outcomes, up_to, strict=True)]
    chances = [float(counts[1:] @ (high**k * part)) for high, part in zip(up_to, rare, strict=True)]
    return np.array([*chances, counts[0]])


def divergence(p: np.ndarray, q: np.ndarray, order: float) -> float:
    """Rényi's, of p from q."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, order * np.log(p) + (1 - order) * np.log(q), -np.inf)
    return float(np.logaddexp.reduce(terms)) / (order - 1)


def both_ways(p: np.ndarray, q: np.ndarray, order: float) -> float:
    return max(divergence(p, q, order), divergence(q, p, order))
