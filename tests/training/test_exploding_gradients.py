"""A recurrent network on a task with long memory: gradients explode, and the tanh filter holds them, private or not."""

import math

import pytest
import torch
from torch import nn

from tacit.clipping import Tanh
from tacit.datasets import DataSet
from tacit.datasets.adding import adding
from tacit.gradients import clipped_grad
from tacit.models import SequenceReader
from tacit.plan import DPSGD
from tacit.training import Execution, Private
from tacit.training.evaluation import evaluate, regression_loss

FILTER = Tanh(c=0.01, k=0.03)
LEARNING_RATE = 0.3


@pytest.fixture(scope="module")
def data() -> DataSet:
    return adding(30, train_examples=1_000, test_examples=200)


def reader() -> SequenceReader:
    torch.manual_seed(0)
    return SequenceReader(2, 64, 1)


def train(model: nn.Module, data: DataSet, *, steps: int, rule: Tanh | None) -> list[float]:
    """Plain descent, with the mean gradient through the filter where there is one; the largest number of each step."""
    optimizer, generator = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE), torch.Generator().manual_seed(1)
    moved = []
    for _ in range(steps):
        batch = data.train[torch.randint(0, len(data.train), (100,), generator=generator)]
        optimizer.zero_grad()
        regression_loss(model, *batch).mean().backward()
        for parameter in model.parameters() if rule is not None else ():
            parameter.grad = rule.filter(parameter.grad)
        moved.append(max(float(parameter.grad.abs().max()) for parameter in model.parameters()))
        optimizer.step()
    return moved


def test_plain_gradients_explode(data):
    model = reader()
    moved = train(model, data, steps=60, rule=None)
    assert not math.isfinite(moved[-1]) or max(moved) > 1e3
    assert not evaluate(model, data.test, "regression") < 10


def test_filtered_gradients_do_not(data):
    model = reader()
    moved = train(model, data, steps=60, rule=FILTER)
    assert max(moved) <= FILTER.c
    assert evaluate(model, data.test, "regression") < 0.25


def test_private_gradients_do_not(data):
    model = reader()
    rule = Tanh(FILTER.c, FILTER.k, bound=0.3)
    plan = DPSGD(expected_batch_size=100, examples=1_000, steps=15, clipping=rule, delta=1e-4, noise_multiplier=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    private = Private(model, regression_loss, optimizer, plan, execution=Execution(engine="bookkeeping"))
    for lot in private.batches(data.train):
        private.step(lot)
    assert evaluate(model, data.test, "regression") < 1.0
    assert "0.01 tanh(g / 0.03), then clipped at norm 0.3" in str(private.statement())


def test_engines_agree_on_the_network(data):
    batch = data.train[:4]
    sums = [
        clipped_grad(reader().double(), regression_loss, clipping=FILTER, engine=engine)(
            *(column.double() for column in batch)
        ).grads
        for engine in ("reference", "functional", "bookkeeping")
    ]
    for name, expected in sums[0].items():
        for found in sums[1:]:
            torch.testing.assert_close(found[name], expected, rtol=1e-9, atol=1e-12)


def test_the_reader_starts_with_orthogonal_recurrent_weights():
    weights = SequenceReader(2, 16, 3, gain=1.5).recurrent.get_parameter("weight_hh_l0").detach()
    torch.testing.assert_close(weights @ weights.t(), 2.25 * torch.eye(16), rtol=1e-5, atol=1e-5)
    assert SequenceReader(2, 16, 3)(torch.zeros(5, 7, 2)).shape == (5, 3)
