"""A small clipped_grad for every engine, and the check of its errors. Not a test file itself."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tacit.clipping import Flat
from tacit.gradients import clipped_grad

ENGINES = ("reference", "functional", "bookkeeping")
EVERY_ENGINE = pytest.mark.parametrize("engine", [*ENGINES, "auto"])


def losses(model, x, y):
    return F.cross_entropy(model(x), y, reduction="none")


def build(engine="auto", loss_fn=losses, model=None, **options):
    torch.manual_seed(0)
    model = model or nn.Linear(4, 3)
    return clipped_grad(model, loss_fn, clipping=Flat(0.5), engine=engine, **options)


def assert_one_line(caught):
    assert "\n" not in str(caught.value)
