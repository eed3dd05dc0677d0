"""Which public inputs to ask the teachers for.

`choose_rows` takes one of these ways by name:

- `random_rows`: any, in a random order.
- `representative_rows`: one from the middle of each cluster, so that no kind of input is left out and every answer is
  true of many others.
- `least_confident_rows`: those that a student is least sure of, once there is one.
- Only what teachers agree on: give more rows than wanted to `tacit.pate.answering.ask`, `ConfidentGNMax` as the
  aggregator and the number wanted as ``answers``; a question that does not pass costs its test alone.

None of it costs privacy: the public inputs are public, and so is a student that learned from noisy answers.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch
from sklearn.cluster import KMeans
from torch import Tensor, nn

from tacit.core.errors import InputError
from tacit.core.validation import check_count

Rows = npt.NDArray[np.int64]
Probabilities = npt.NDArray[np.float64]
"""``[public rows, classes]``: what a student makes of the public inputs; public itself."""

CHOICES = ("representative", "random", "least-confident")
_CLUSTER_ROUNDS = 30
_TOLERANCE = 1e-3  # of probabilities in single precision that add up to 1


def choose_rows(
    choice: str,
    wanted: int,
    *,
    features: Tensor,
    probabilities: Probabilities | None = None,
    asked: Iterable[int] = (),
    seed: int = 0,
) -> Rows:
    """Which rows a round asks for, by one of `CHOICES`; none that was asked for before.

    Args:
        choice: by name.
        wanted: how many; fewer where fewer are left.
        features: of the public inputs, ``[inputs, numbers]``.
        probabilities: of a student, once there is one; before it the least confident are representative ones.
        asked: rows to leave out.
        seed: of everything random in it.
    """
    before = np.fromiter(asked, dtype=np.int64)
    if choice == "random":
        rows = random_rows(len(features), len(features), seed=seed)
        return rows[~np.isin(rows, before)][:wanted]
    if choice == "least-confident" and probabilities is not None:
        return least_confident_rows(probabilities, wanted, asked=before)
    return representative_rows(features, wanted, asked=before, seed=seed)


def random_rows(count: int, wanted: int, *, seed: int = 0) -> Rows:
    """Rows of the public set in a random order; nothing of it is private."""
    return np.random.default_rng(seed).permutation(count)[:wanted]


def representative_rows(features: Tensor, wanted: int, *, asked: Iterable[int] = (), seed: int = 0) -> Rows:
    """The row nearest to the middle of each of so many clusters, of the largest cluster first.

    Clusters are those of k-means by angle. A budget that ends early has then asked for what stands for the most.

    Args:
        features: of the public inputs, ``[inputs, numbers]``.
        wanted: how many; fewer where fewer are left, or where rows are alike.
        asked: rows to leave out, since they were asked for before.
        seed: of the first middles.
    """
    check_count("wanted", wanted)
    left = np.setdiff1d(np.arange(len(features)), np.fromiter(asked, dtype=np.int64))
    rows = torch.nn.functional.normalize(features[left].flatten(1).float(), dim=1).cpu().numpy()
    if wanted >= len(rows):
        return left.astype(np.int64)
    distinct = min(wanted, len(np.unique(rows, axis=0)))
    found = KMeans(distinct, n_init=1, max_iter=_CLUSTER_ROUNDS, random_state=seed).fit(rows)
    middles = found.transform(rows).argmin(0)
    largest_first = np.argsort(-np.bincount(found.labels_, minlength=distinct), kind="stable")
    return np.asarray(left[middles[largest_first]], dtype=np.int64)


def least_confident_rows(probabilities: Probabilities, wanted: int, *, asked: Iterable[int] = ()) -> Rows:
    r"""Rows by :math:`\max_j p_j`, the lowest first; among equals those that come first in the public set.

    Args:
        probabilities: from `student_probabilities`.
        wanted: how many; fewer where fewer are left.
        asked: rows to leave out, since they were asked for before.
    """
    check_count("wanted", wanted)
    sure = check_probabilities(probabilities).max(axis=1)
    order = np.argsort(sure, kind="stable").astype(np.int64)
    return order[~np.isin(order, np.fromiter(asked, dtype=np.int64))][:wanted]


@torch.no_grad()
def student_probabilities(model: nn.Module, inputs: Tensor, *, rows_at_once: int = 1000) -> Probabilities:
    """The softmax of a student's outputs on the public inputs, ``[rows, classes]``; the model is left as it was."""
    training = model.training
    model.eval()
    try:
        outputs = torch.cat([model(rows) for rows in torch.split(inputs, rows_at_once)])
    finally:
        model.train(training)
    return outputs.double().softmax(1).cpu().numpy()


def check_probabilities(probabilities: npt.ArrayLike) -> Probabilities:
    """Refuses what is not one distribution a row."""
    values = np.asarray(probabilities, dtype=np.float64)
    if values.ndim != 2:
        raise InputError(f"probabilities of shape {values.shape}: must be [public rows, classes].")
    # A comparison with NaN is false, so that NaN is refused as well.
    if not ((values >= 0).all() and (np.abs(values.sum(axis=1) - 1) <= _TOLERANCE).all()):
        raise InputError("probabilities: must be at least 0 and add up to 1 in every row. Take the softmax of outputs.")
    return values
