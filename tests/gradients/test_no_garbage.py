"""A step leaves no garbage with tensors in it: activations would stay until Python collects it, beside the next."""

import gc

import pytest
import torch
from layer_cases import CASES, squared_outputs
from torch import Tensor

from tacit.clipping import Flat
from tacit.gradients import clipped_grad


@pytest.fixture
def garbage():
    """What only the garbage collector would find, of things that are made from now on."""
    gc.freeze()  # for good: what is there stays, with the little garbage among it
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "bookkeeping" in case.engines])
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_a_step_leaves_no_tensors_to_the_collector(name, request):
    torch.manual_seed(0)
    model, inputs = CASES[name].build().double(), CASES[name].inputs()
    grad = clipped_grad(model, squared_outputs, clipping=Flat(0.5), engine="bookkeeping")
    grad(*inputs)  # finds out about the model, once
    found = request.getfixturevalue("garbage")
    grad(*inputs)
    gc.collect()
    assert not [thing for thing in found if isinstance(thing, Tensor)]
