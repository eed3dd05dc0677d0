"""Without clipping and without noise, on all records at every step, private training is plain training."""

import pytest
import torch
import torch.nn.functional as F
from private_checks import cross_entropy, plan
from torch import nn

import tacit
from tacit.clipping import Flat, PerLayer
from tacit.training import Execution, Private

RECORDS, STEPS = 24, 15


def degenerate(clipping=None):
    """Sampling rate 1, a bound that no gradient reaches, and no noise."""
    return plan(
        examples=RECORDS,
        expected_batch_size=RECORDS,
        steps=STEPS,
        clipping=clipping or Flat(1e9),
        noise_multiplier=0,
    )


def data(shape, dtype):
    torch.manual_seed(1)
    return torch.randn(RECORDS, *shape, dtype=dtype), torch.randint(0, 4, (RECORDS,))


def train_plainly(model, x, y, optimizer):
    for _ in range(STEPS):
        grads = torch.autograd.grad(cross_entropy(model, x, y).sum(), list(model.parameters()))
        for parameter, grad in zip(model.parameters(), grads, strict=True):
            parameter.grad = grad / RECORDS
        optimizer.step()


def mlp(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 12, bias=False), nn.Tanh(), nn.Linear(12, 4, bias=False)).to(dtype)


OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.5),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.3, momentum=0.9, nesterov=True),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.05),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("clipping", [Flat(1e9), PerLayer(1e9)], ids=repr)
def test_a_whole_run_is_plain_training_bit_for_bit(name, dtype, clipping):
    x, y = data((8,), dtype)
    ours, plain = mlp(dtype), mlp(dtype)
    result = tacit.fit(
        ours,
        cross_entropy,
        (x, y),
        degenerate(clipping),
        optimizer=OPTIMIZERS[name](ours.parameters()),
        execution=Execution(engine="bookkeeping"),
    )
    train_plainly(plain, x, y, OPTIMIZERS[name](plain.parameters()))
    for (key, one), two in zip(ours.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(one, two), key
    assert not torch.equal(mlp(dtype)[0].weight, ours[0].weight)
    assert result.statement.epsilon == float("inf")


MODELS = {
    "mlp with biases": (lambda: nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 4)), (8,)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 4)),
        (2, 6, 6),
    ),
    "norm": (lambda: nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 4)), (8,)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "execution",
    [
        Execution(engine="bookkeeping"),
        Execution(engine="functional", chunk_size=7),
        Execution(engine="reference"),
        Execution(engine="bookkeeping", chunk_size=5, pad_chunks=True),
    ],
    ids=str,
)
def test_a_whole_run_is_plain_training_to_rounding(name, execution):
    make, shape = MODELS[name]
    x, y = data(shape, torch.float64)
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(make().double())
    ours, plain = models
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.2)
    tacit.fit(ours, cross_entropy, (x, y), degenerate(), optimizer=optimizer, execution=execution)
    train_plainly(plain, x, y, torch.optim.SGD(plain.parameters(), lr=0.2))
    for one, two in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


def test_a_bound_that_bites_is_not_plain_training():
    """The test above could fail: with a bound of 0.1 the same run ends elsewhere."""
    x, y = data((8,), torch.float64)
    ours, plain = mlp(torch.float64), mlp(torch.float64)
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.5)
    tacit.fit(ours, cross_entropy, (x, y), degenerate(Flat(0.1)), optimizer=optimizer)
    train_plainly(plain, x, y, torch.optim.SGD(plain.parameters(), lr=0.5))
    assert float((ours[0].weight - plain[0].weight).detach().abs().max()) > 1e-3


def test_the_divisor_is_the_expected_lot_and_not_a_mean():
    """Half of the records on average: a step is the sum over the lot over L, whatever the lot's size."""
    x, y = data((8,), torch.float64)
    model = mlp(torch.float64)
    the_plan = plan(examples=RECORDS, expected_batch_size=12, steps=STEPS, clipping=Flat(1e9), noise_multiplier=0)
    private = Private(model, cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1), the_plan)
    sizes = set()
    for lot in private.batches((x, y)):
        rows = lot.unsafe_indices
        sizes.add(len(rows))
        total = torch.autograd.grad(F.cross_entropy(model(x[rows]), y[rows], reduction="sum"), list(model.parameters()))
        private.step(lot)
        for parameter, grad in zip(model.parameters(), total, strict=True):
            torch.testing.assert_close(parameter.grad, grad / 12, rtol=1e-12, atol=1e-14)
    assert len(sizes) > 1
