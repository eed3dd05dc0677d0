"""What dropout draws in a private run is secret, whatever torch was seeded with: pitfalls 19 and 20, of known seeds."""

import pytest
import torch
from private_checks import cross_entropy, plan, records
from torch import nn

from tacit.core.randomness import Randomness
from tacit.training import Checkpoint, Execution, Private, fit

PLAN = plan(steps=3)
EXECUTION = Execution(engine="reference", preflight=False)

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def numbers(count, device):
    """As torch's own generator of this device draws them."""
    return torch.rand(count, dtype=torch.float64, device=device).tolist()


class Drawing(nn.Linear):
    """A layer that keeps what it drew in training."""

    def __init__(self, device):
        super().__init__(8, 4, dtype=torch.float64, device=device)
        self.drawn = []

    def forward(self, x):
        self.drawn.append(numbers(6, x.device))
        return super().forward(x)

    def optimizer(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def in_a_loop(model, randomness, folder):
    private = Private(model, cross_entropy, model.optimizer(), PLAN, randomness=randomness, execution=EXECUTION)
    for lot in private.batches(records()):
        private.step(lot)


def by_fit(model, randomness, folder):
    options = {"optimizer": model.optimizer(), "randomness": randomness, "execution": EXECUTION}
    fit(model, cross_entropy, records(), PLAN, checkpoint=folder and Checkpoint(folder), **options)


def without_checkpoint(model, randomness, folder):
    by_fit(model, randomness, None)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=gpu)])
def device(request):
    return request.param


@pytest.fixture(params=[in_a_loop, by_fit, without_checkpoint])
def drawn(request, device, tmp_path):
    """What a run draws whose torch was seeded with 0."""

    def run(name, randomness=None):
        model = Drawing(device)
        torch.manual_seed(0)
        request.param(model, randomness, tmp_path / name)
        return model.drawn

    return run


def test_a_seed_tells_nothing_of_what_is_drawn(drawn, device):
    one, two = drawn("one"), drawn("two")
    torch.manual_seed(0)
    assert one[0] != two[0]
    assert set(numbers(10_000, device)).isdisjoint(one[0] + two[0])


def test_a_fixed_seed_leaves_torch_to_its_own(drawn, device):
    one, two = (drawn(name, Randomness(unsafe_seed=3)) for name in ("one", "two"))
    torch.manual_seed(0)
    assert one == two
    assert one[0] == numbers(6, device)


def test_torch_goes_on_afterwards_from_where_it_stood(drawn, device):
    drawn("one", Randomness())
    found = numbers(6, device)
    torch.manual_seed(0)
    assert found == numbers(6, device)


def test_a_loop_that_is_left_and_taken_up_draws_anew(device):
    model = Drawing(device)
    private = Private(model, cross_entropy, model.optimizer(), PLAN, execution=EXECUTION)
    firsts = []
    for _ in range(2):
        torch.manual_seed(0)
        private.step(next(iter(private.batches(records()))))
        firsts.append(model.drawn[0])
        model.drawn.clear()
    assert firsts[0] != firsts[1]
