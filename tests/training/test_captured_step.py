"""A step as one launch: whose sums get the noise, and what may not be captured. Graphs are stood in for on the CPU."""

import pytest
import torch
from torch import nn

from tacit.core.row_sums import RowForm, RowSum
from tacit.gradients.compiled_engine import Captured
from tacit.training.captured_step import CapturedStep
from tacit.training.update import Update

LOTS = {"first": 100.0, "second": -100.0}


class StandInNoise:
    """Adds a thousandth to what it is pointed to and divides by ten, when a graph runs it."""

    launches = True

    def __init__(self):
        self.table, self.launched, self.forms, self.pointed = object(), [], [], 0
        self.pointing = None

    def point_to(self, sums, descent=None, open_sums=None):
        self.at, self.descent, self.open_sums = sums, descent, open_sums
        self.pointing = object()
        self.pointed += 1

    def launch(self, key, form=None):
        self.launched.append(self.table)
        self.forms.append(form)

    def run(self):
        for value in self.at.values():
            value.add_(0.001).div_(10)


class StandInGrad:
    """Several programs, each with memory of its own, which ``finish`` sees once."""

    compiles = True

    def __init__(self, parameter, noise):
        self.parameters, self._noise, self._programs = {"w": parameter}, noise, {}

    def complete(self, sums):
        return sums

    def captured(self, batch, mask, finish):
        known = self._programs.get(batch)
        if known is None or known[0] != finish:
            memory = {"w": torch.zeros(1)}
            self._programs[batch] = finish, memory, finish(memory, None)
        _, memory, finished = self._programs[batch]

        def launch(key):
            memory["w"].fill_(LOTS[batch])
            self._noise.run()

        return Captured(launch, finished, draws=False)


@pytest.fixture
def step():
    parameter, noise = nn.Parameter(torch.zeros(1)), StandInNoise()
    captured = CapturedStep(StandInGrad(parameter, noise), noise, Update(torch.optim.Adam([parameter])))
    captured._tried = True
    return captured, parameter, noise


def taken(captured, lot):
    """Both halves of a step."""
    prepared = captured.prepare(lot, None)
    prepared.launch(bytes(32))
    prepared.update()


def test_every_program_gets_its_own_noise(step):
    captured, parameter, _ = step
    for lot in ("first", "second", "first", "first", "second", "first"):
        taken(captured, lot)
        assert parameter.grad.item() == pytest.approx((LOTS[lot] + 0.001) / 10)


def test_the_noise_is_pointed_to_the_same_sums_once(step):
    captured, _, noise = step
    for _ in range(3):
        taken(captured, "first")
    assert noise.pointed == 1


def test_noise_that_was_pointed_elsewhere_comes_back(step):
    """As by an ordinary step that broke off before the end: this one's sums would get none."""
    captured, parameter, noise = step
    taken(captured, "first")
    noise.point_to({"w": torch.zeros(1)})
    taken(captured, "first")
    assert parameter.grad.item() == pytest.approx((LOTS["first"] + 0.001) / 10)


def test_another_rate_is_pointed_to(step):
    captured, parameter, noise = step
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    captured._update = Update(optimizer)
    for rate in (0.5, 0.25, 0.25):
        optimizer.param_groups[0]["lr"] = rate
        taken(captured, "first")
        assert noise.descent["w"][1] == rate
    assert noise.pointed == 2


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_what_the_optimizer_holds_beside_loses_its_gradient(step, kind):
    captured, parameter, _ = step
    other = nn.Parameter(torch.zeros(1))
    captured._update = Update(getattr(torch.optim, kind)([parameter, other], lr=0.1))
    for _ in range(2):
        other.grad = torch.ones(1)
        taken(captured, "first")
        assert other.grad is None
        assert other.item() == 0


def test_another_table_of_noise_is_captured_anew(step):
    captured, _, noise = step
    taken(captured, "first")
    taken(captured, "first")
    assert len(noise.launched) == 1
    noise.table = object()
    taken(captured, "first")
    assert noise.launched[-1] is noise.table


def test_nothing_is_prepared_where_nothing_is_compiled(step):
    captured, _, _ = step
    captured._grad.compiles = False
    assert not captured.is_possible
    assert captured.prepare("first", None) is None


def test_sums_that_a_program_leaves_open_are_the_noises_to_take(step):
    captured, _, noise = step
    each = RowSum(torch.ones(3, 8), torch.ones(3), torch.ones(3, dtype=torch.bool), torch.zeros(8))
    finished = captured._finish({"w": each, "v": torch.zeros(1)}, torch.zeros(8))
    assert noise.forms == [RowForm.of([each])]
    assert finished.sums["w"] is each.total
    captured._noise.at = None
    captured._launch(lambda key: None, finished, None, bytes(32))
    assert noise.at is finished.sums
    assert noise.open_sums == {"w": each}


def test_what_completes_the_sums_is_captured_before_the_noise(step):
    """It may copy, and a copy of a sum from before the noise, made after it, would be a sum without noise."""
    captured, _, noise = step
    copy = torch.zeros(1)

    def complete(sums):
        assert not noise.launched
        return {"w": copy}

    captured._grad.complete = complete
    finished = captured._finish({"w": torch.zeros(1)}, torch.zeros(8))
    assert noise.launched
    assert finished.sums["w"] is copy
