"""How students descend, against AdamW, its cosine and the average of the weights written out number by number."""

import copy
import math

import pytest
import torch
from torch import nn

from tacit.pate.students import student
from tacit.pate.students.student import descend
from tacit.training import WeightAverage

STEPS, RATE, DECAY = 50, 0.02, 0.9
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}


def network(device, dtype):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)).to(device, dtype)


def error(model, share):
    """Of a regression that matters less and less, so that gradients fall."""
    parameter = next(model.parameters())
    inputs = torch.linspace(-2, 2, 48).sin().view(8, 6).to(parameter)
    return (1 - share) ** 2 * (model(inputs) - inputs[:, :2].square()).square().sum()


def slow_descent(model):
    """The weights' average, weight by weight: Loshchilov and Hutter, algorithm 2, with torch's constants."""
    weights = list(model.parameters())
    first, second = ([torch.zeros_like(weight) for weight in weights] for _ in range(2))
    averages = [weight.detach().clone() for weight in weights]
    for step in range(STEPS):
        rate = RATE * (1 + math.cos(math.pi * step / STEPS)) / 2
        gradients = torch.autograd.grad(error(model, step / STEPS), weights)
        decay = min(DECAY, (1 + step) / (10 + step))
        with torch.no_grad():
            for k, gradient in enumerate(gradients):
                first[k] = 0.9 * first[k] + 0.1 * gradient
                second[k] = 0.999 * second[k] + 0.001 * gradient**2
                mean, square = first[k] / (1 - 0.9 ** (step + 1)), second[k] / (1 - 0.999 ** (step + 1))
                weights[k] *= 1 - rate * 0.01
                weights[k] -= rate * mean / (square.sqrt() + 1e-8)
                averages[k].lerp_(weights[k], 1 - decay)
    return averages


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_a_descent_is_that_of_the_definition(device, dtype):
    model = network(device, dtype)
    expected, shares, told = slow_descent(copy.deepcopy(model)), [], []

    def loss(share):
        shares.append(share)
        return error(model, share)

    descend(model, loss, WeightAverage(model, DECAY), steps=STEPS, learning_rate=RATE, progress=told.append)
    assert shares == [step / STEPS for step in range(STEPS)]
    assert told == [(step + 1) / STEPS for step in range(STEPS)]
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(list(model.parameters()), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("device", DEVICES)
def test_the_average_takes_all_weights_as_it_would_take_each(device):
    model = network(device, torch.float32)
    average = WeightAverage(model, DECAY)
    expected = [weight.detach().clone() for weight in model.parameters()]
    for step in range(STEPS):
        with torch.no_grad():
            for weight, own in zip(model.parameters(), expected, strict=True):
                weight += torch.randn_like(weight)
                own.lerp_(weight, 1 - min(DECAY, (1 + step) / (10 + step)))
        average.update(model)
    torch.testing.assert_close(list(average.weights.values()), expected, rtol=1e-5, atol=1e-6)


def test_where_one_call_was_not_tried_torch_chooses(monkeypatch):
    seen = []

    class Noted(torch.optim.AdamW):
        def __init__(self, *arguments, fused, **options):
            seen.append(fused)
            super().__init__(*arguments, fused=fused, **options)

    monkeypatch.setattr(torch.optim, "AdamW", Noted)
    model = network("cpu", torch.float32)
    for devices in ({"cpu"}, set()):
        monkeypatch.setattr(student, "_FUSED", devices)
        once = {"steps": 1, "learning_rate": RATE, "progress": lambda _: None}
        descend(model, lambda share: error(model, share), WeightAverage(model, DECAY), **once)
    assert seen == [True, None]  # False would have every weight updated by itself
