"""The adding problem: a generated task with long memory, and the same on every machine."""

import numpy as np
import torch

from tacit.core.validation import check_count
from tacit.datasets.partition import public_uniforms
from tacit.datasets.split import DataSet, Split

_SHORTEST = 2


def adding(length: int = 50, *, train_examples: int = 10_000, test_examples: int = 2_000) -> DataSet:
    r"""Sequences of numbers of which two are marked; the target is the sum of the two.

    An input is of shape ``[length, 2]``: at time t a number :math:`v_t`, uniform in [0, 1), and a mark that is 1 at one
    place of the first half and at one of the second, and 0 elsewhere. The target is
    :math:`v_a + v_b - 1`, a regression in [-1, 1]. To beat the constant 0, whose mean squared error is 1/6, a network
    must carry :math:`v_a` over up to ``length`` steps, and plain gradients through so many steps vanish or explode.

    The numbers come from a fixed counter (`tacit.datasets.partition`), so that every machine and every version has the
    same set; test sequences follow the training ones.

    Args:
        length: of a sequence, at least 2.
        train_examples, test_examples: how many sequences.

    Reference: Hochreiter and Schmidhuber, Long Short-Term Memory, 1997, experiment 4.
    """
    check_count("length", length, minimum=_SHORTEST)
    train = check_count("train_examples", train_examples)
    total = train + check_count("test_examples", test_examples)
    uniforms = public_uniforms(total * (length + 2)).reshape(total, length + 2)
    values, places = uniforms[:, :length].astype(np.float32), uniforms[:, length:]
    half = length // 2
    marked = np.stack([places[:, 0] * half, half + places[:, 1] * (length - half)], axis=1).astype(np.int64)
    marks = np.zeros_like(values)
    np.put_along_axis(marks, marked, 1.0, axis=1)
    inputs = torch.from_numpy(np.stack([values, marks], axis=2))
    targets = torch.from_numpy(np.take_along_axis(values, marked, axis=1).sum(1) - 1)
    return DataSet(
        name="adding",
        train=Split(inputs[:train], targets[:train]),
        test=Split(inputs[train:], targets[train:]),
        classes=1,
        input_shape=(length, 2),
        source="generated",
        task="regression",
        feature_names=("value", "mark"),
        target_bounds=(0.0, 2.0),
    )
