r"""LiRA, the likelihood ratio attack: is the target's confidence like that of models with the record, or without it?

For each record the confidences :math:`\phi` of shadow models with it and without it are taken as normal.

- **Online**, with models of both kinds: the score is
  :math:`\log N(\phi; \mu_{in}, \sigma_{in}^2) - \log N(\phi; \mu_{out}, \sigma_{out}^2)`.
- **Offline**, with models that never saw the record: the score is :math:`(\phi - \mu_{out}) / \sigma_{out}`, which
  orders records as the one-sided test :math:`P[N(\mu_{out}, \sigma_{out}^2) \le \phi]` does.

The variances are each record's own, or one for all records (``fixed``), which is the better choice with fewer than some
64 shadow models. Several queries of a record are taken as independent: their scores are added.

Carlini, Chien, Nasr, Song, Terzis and Tramèr, Membership Inference Attacks From First Principles, 2022.
"""

import numpy as np
import numpy.typing as npt

from tacit.auditing.arrays import FloatArray
from tacit.auditing.attacks.observations import Observations, Spread
from tacit.core.validation import check_choice

VARIANCES = ("fixed", "per-example")
_LEAST_VARIANCE = 1e-12  # of models that all say the same


def lira(target: npt.ArrayLike, shadows: Observations, *, online: bool = True, variance: str = "fixed") -> FloatArray:
    """Scores ``[records]`` from the target's confidences, ``[records]`` or ``[queries, records]``.

    Args:
        target: confidences in the records of the pool, with the same queries as those of the shadow models.
        shadows: models that were trained like the target, each on a random half of the pool.
        online: whether models that were trained on the record are used too.
        variance: ``fixed`` or ``per-example``. A record with fewer than two models of a kind has the fixed one.

    A record that no shadow model was trained on is given the mean shift of all others for its own, and in the same way
    one that all were trained on.
    """
    check_choice("variance", variance, VARIANCES)
    said = np.atleast_2d(np.asarray(target, dtype=np.float64))
    inside, outside = shadows.spread(inside=True), shadows.spread(inside=False)
    shift = _mean_shift(inside, outside)
    out_mean = np.where(outside.count == 0, inside.mean - shift, outside.mean)
    out_variance = _variance(outside, variance)
    if not online:
        scores: FloatArray = (said - out_mean) / np.sqrt(out_variance)
    else:
        in_mean = np.where(inside.count == 0, outside.mean + shift, inside.mean)
        scores = _log_normal(said, in_mean, _variance(inside, variance)) - _log_normal(said, out_mean, out_variance)
    return np.asarray(scores.sum(axis=0))


def _variance(spread: Spread, kind: str) -> FloatArray:
    found = spread.fixed_variance() if kind == "fixed" else spread.own_variance()
    return np.maximum(found, _LEAST_VARIANCE)


def _mean_shift(inside: Spread, outside: Spread) -> FloatArray:
    """By how much a record's presence raises the confidence in it, on average: ``[queries, 1]``."""
    both = (inside.count > 0) & (outside.count > 0)
    shifts = (inside.mean - outside.mean)[:, both]
    return np.asarray(shifts.mean(axis=1, keepdims=True)) if both.any() else np.zeros((1, 1))


def _log_normal(values: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
    """The logarithm of the density, but for the constant."""
    return -0.5 * ((values - mean) ** 2 / variance + np.log(variance))
