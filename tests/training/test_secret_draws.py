"""What dropout draws in a private run is secret, whatever torch was seeded with: pitfalls 19 and 20, of known seeds."""

import threading

import pytest
import torch
from private_checks import cross_entropy, plan, records
from torch import nn

from tacit.core.randomness import Randomness
from tacit.training import Execution, Private, fit
from tacit.training.secret_draws import drawing_in_secret

PLAN = plan(steps=3)
EXECUTION = Execution(engine="reference", preflight=False)

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def numbers(count, device):
    """As torch's own generator of this device draws them."""
    return torch.rand(count, dtype=torch.float64, device=device).tolist()


class Drawing(nn.Linear):
    """A layer that keeps what it drew in training, from the generators of its device and of the CPU."""

    def __init__(self, device):
        super().__init__(8, 4, dtype=torch.float64, device=device)
        self.drawn = []

    def forward(self, x):
        self.drawn += numbers(6, x.device) + numbers(2, "cpu")
        return super().forward(x)

    def private(self, randomness=None):
        return Private(self, cross_entropy, self.optimizer(), PLAN, randomness=randomness, execution=EXECUTION)

    def optimizer(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def in_a_loop(model, randomness):
    private = model.private(randomness)
    for lot in private.batches(records()):
        private.step(lot)


def by_fit(model, randomness):
    options = {"optimizer": model.optimizer(), "randomness": randomness, "execution": EXECUTION}
    fit(model, cross_entropy, records(), PLAN, **options)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=gpu)])
def device(request):
    return request.param


@pytest.fixture(params=[in_a_loop, by_fit])
def drawn(request, device):
    """What a run draws whose torch was seeded with 0."""

    def run(randomness=None):
        model = Drawing(device)
        torch.manual_seed(0)
        request.param(model, randomness)
        return model.drawn

    return run


def known(device):
    """What whoever knows the seed knows."""
    torch.manual_seed(0)
    return {*numbers(10_000, device), *numbers(10_000, "cpu")}


def test_a_seed_tells_nothing_of_what_is_drawn(drawn, device):
    one, two = drawn(), drawn()
    assert known(device).isdisjoint(one + two)
    assert set(one).isdisjoint(two)
    assert len(set(one)) == len(one)  # each step has a key of its own


def test_a_fixed_seed_of_the_run_decides_and_torchs_does_not(drawn, device):
    one, two = drawn(Randomness(unsafe_seed=3)), drawn(Randomness(unsafe_seed=3))
    assert one == two
    assert known(device).isdisjoint(one)
    assert drawn(Randomness(unsafe_seed=4)) != one


def test_torch_goes_on_from_where_it_stood(drawn, device):
    drawn()
    found = numbers(6, device), numbers(6, "cpu")
    torch.manual_seed(0)
    assert found == (numbers(6, device), numbers(6, "cpu"))


def test_runs_that_take_turns_do_not_open_each_other(device):
    models = Drawing(device), Drawing(device)
    torch.manual_seed(0)
    privates = [model.private() for model in models]
    loops = [private.batches(records()) for private in privates]
    for _ in range(PLAN.steps):
        for private, loop in zip(privates, loops, strict=True):
            private.step(next(loop))
    assert known(device).isdisjoint(models[0].drawn + models[1].drawn)


def test_torch_is_put_back_where_a_step_fails(device):
    model = Drawing(device)
    private = Private(model, failing, model.optimizer(), PLAN, execution=EXECUTION)
    torch.manual_seed(0)
    with pytest.raises(RuntimeError, match="no loss"):
        private.step(next(private.batches(records())))
    found = numbers(6, device)
    torch.manual_seed(0)
    assert found == numbers(6, device)


def failing(model, x, y):
    model(x)
    raise RuntimeError("no loss")


def test_steps_of_other_threads_wait(device):
    """They share torch's generators: one that ended would put the seed back under the other."""
    device, entered = torch.device(device), threading.Event()

    def other():
        with drawing_in_secret(bytes(32), device):
            entered.set()

    with drawing_in_secret(bytes(range(32)), device):
        thread = threading.Thread(target=other)
        thread.start()
        assert not entered.wait(0.2)
    thread.join(10)
    assert entered.is_set()
