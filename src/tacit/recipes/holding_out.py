"""Training examples that are kept from training and measured on: whatever is chosen is chosen so."""

import dataclasses

import numpy as np

from tacit.datasets import DataSet, Split
from tacit.datasets.partition import public_uniforms

HELD_OUT = 5000


def examples_left(examples: int) -> int:
    """How many of so many training examples are still trained on."""
    return examples - min(HELD_OUT, examples // 5)


def hold_out(data: DataSet) -> DataSet:
    """The training split alone, `HELD_OUT` of its examples in the place of the test split: a public choice of rows.

    At most a fifth of the examples are held out.
    """
    count = len(data.train) - examples_left(len(data.train))
    order = np.argsort(public_uniforms(len(data.train)), kind="stable")
    kept, held = np.sort(order[count:]), np.sort(order[:count])
    return dataclasses.replace(data, train=Split(*data.train[kept]), test=Split(*data.train[held]))
