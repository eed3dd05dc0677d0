"""A step takes the same operations for any number of examples: a loop over them would be slow, and long to trace."""

import collections

import pytest
import torch
from layer_cases import CASES, EXAMPLES, squared_outputs
from torch.utils._python_dispatch import TorchDispatchMode

from tacit.clipping import Flat
from tacit.gradients import clipped_grad

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


class Counting(TorchDispatchMode):
    """Counts operations by name."""

    def __init__(self):
        super().__init__()
        self.operations = collections.Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.operations[str(function)] += 1
        return function(*args, **(kwargs or {}))


def operations(case, times):
    torch.manual_seed(0)
    batch = [leaf.repeat_interleave(times, 0) if leaf.shape[0] == EXAMPLES else leaf for leaf in case.inputs()]
    grad = clipped_grad(case.build().double(), squared_outputs, clipping=Flat(1.0), engine="bookkeeping")
    grad(*batch)  # probes
    with Counting() as counting:
        grad(*batch)
    return counting.operations


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "bookkeeping" in case.engines])
def test_operations_do_not_depend_on_the_number_of_examples(name):
    assert operations(CASES[name], 1) == operations(CASES[name], 3)
