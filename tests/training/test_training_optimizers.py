"""Adam for noisy gradients, and optimizers and schedules by name."""

import math

import pytest
import torch
from torch import nn

from tacit.core import InputError
from tacit.training.optimizers import NoiseCorrectedAdam, make_optimizer, make_schedule


def parameters():
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(5, 3, dtype=torch.float64)), nn.Parameter(torch.randn(4, dtype=torch.float64))]


def follow(optimizer, ours, steps=20):
    generator = torch.Generator().manual_seed(3)
    for _ in range(steps):
        for parameter in ours:
            parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        optimizer.step()
    return ours


def test_without_noise_it_is_adam():
    """Up to where epsilon stands: under the root here, beside it there."""
    ours, theirs = parameters(), parameters()
    follow(NoiseCorrectedAdam(ours, lr=0.02, noise_variance=0.0, betas=(0.8, 0.95)), ours)
    follow(torch.optim.Adam(theirs, lr=0.02, betas=(0.8, 0.95), eps=1e-30), theirs)
    for one, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)


def test_the_noise_variance_is_taken_out_of_the_second_moment():
    parameter = nn.Parameter(torch.tensor([1.0, 1.0], dtype=torch.float64))
    optimizer = NoiseCorrectedAdam([parameter], lr=0.1, noise_variance=0.75, floor=0.04)
    parameter.grad = torch.tensor([1.0, 0.5], dtype=torch.float64)
    optimizer.step()
    # First step: the moments are g and g². 1 - 0.75 = 0.25; 0.25 - 0.75 is below the floor of 0.04.
    expected = torch.tensor([1 - 0.1 * 1.0 / 0.5, 1 - 0.1 * 0.5 / 0.2], dtype=torch.float64)
    torch.testing.assert_close(parameter.detach(), expected, rtol=1e-12, atol=0)


def test_two_steps_by_hand():
    parameter = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = NoiseCorrectedAdam([parameter], lr=1.0, noise_variance=0.1, betas=(0.9, 0.99))
    place, first, second = 0.0, 0.0, 0.0
    for t, grad in enumerate((2.0, -1.0), start=1):
        parameter.grad = torch.tensor([grad], dtype=torch.float64)
        optimizer.step()
        first, second = 0.9 * first + 0.1 * grad, 0.99 * second + 0.01 * grad**2
        signal = max(second / (1 - 0.99**t) - 0.1, 0.1 / 20)
        place -= first / (1 - 0.9**t) / math.sqrt(signal)
    assert float(parameter.detach()) == pytest.approx(place, rel=1e-12)


def test_pure_noise_is_corrected_away_and_a_signal_is_not_lost():
    """With noise far above the signal, plain Adam divides by the noise; the corrected one nearly by the signal."""
    noise = 1.0
    generator = torch.Generator().manual_seed(0)
    steps = {}
    for variance in (0.0, noise**2):
        parameter = nn.Parameter(torch.zeros(2000, dtype=torch.float64))
        optimizer = NoiseCorrectedAdam([parameter], lr=1.0, noise_variance=variance, betas=(0.999, 0.999))
        for _ in range(300):
            drawn = torch.randn(2000, generator=generator, dtype=torch.float64)
            parameter.grad = 0.3 + noise * drawn
            before = parameter.detach().clone()
            optimizer.step()
        steps[variance] = float((before - parameter.detach()).mean())
    assert steps[0.0] == pytest.approx(0.3 / math.sqrt(1.09), rel=0.05)
    assert steps[1.0] > 2 * steps[0.0]


def test_a_parameter_without_gradient_stays():
    ours = parameters()
    optimizer = NoiseCorrectedAdam(ours, noise_variance=0.1)
    ours[0].grad = torch.ones_like(ours[0])
    before = ours[1].clone()
    optimizer.step()
    assert torch.equal(ours[1], before)


def test_state_can_be_saved_and_loaded():
    whole, parts = parameters(), parameters()
    optimizer = NoiseCorrectedAdam(whole, lr=0.05, noise_variance=0.2)
    first = NoiseCorrectedAdam(parts, lr=0.05, noise_variance=0.2)
    generator = torch.Generator().manual_seed(1)
    for step in range(6):
        grads = [torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in whole]
        for group in (whole, parts):
            for parameter, grad in zip(group, grads, strict=True):
                parameter.grad = grad.clone()
        if step == 3:
            second = NoiseCorrectedAdam(parts, lr=0.9, noise_variance=0.9)
            second.load_state_dict(first.state_dict())
            first = second
        optimizer.step()
        first.step()
    assert all(torch.equal(one, two) for one, two in zip(whole, parts, strict=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"lr": 0.0}, "^lr=0.0: "), ({"noise_variance": -1.0}, "^noise_variance=-1.0: "), ({"lr": math.nan}, "^lr=nan: ")],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        NoiseCorrectedAdam(parameters(), **{"noise_variance": 0.1, **arguments})


def test_optimizers_by_name():
    made = {
        name: make_optimizer(name, parameters(), 0.3, noise_scale=0.2)
        for name in ("sgd", "momentum", "adam", "rmsprop")
    }
    assert type(made["sgd"]) is torch.optim.SGD
    assert made["sgd"].defaults["momentum"] == 0
    assert made["momentum"].defaults["momentum"] == 0.9
    assert type(made["rmsprop"]) is torch.optim.RMSprop
    assert made["adam"].defaults["noise_variance"] == pytest.approx(0.04)
    assert all(optimizer.defaults["lr"] == 0.3 for optimizer in made.values())
    with pytest.raises(InputError, match=r"^optimizer='lion': must be one of adam, momentum, rmsprop, sgd"):
        make_optimizer("lion", parameters(), 0.3, noise_scale=0.2)
    with pytest.raises(InputError, match=r"^learning_rate=0: "):
        make_optimizer("sgd", parameters(), 0, noise_scale=0.2)


def rates(name, steps=4):
    optimizer = torch.optim.SGD(parameters(), lr=2.0)
    schedule = make_schedule(name, optimizer, steps)
    found = []
    for _ in range(steps + 1):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if schedule is not None:
            schedule.step()
    return found


def test_schedules_by_name():
    assert rates("constant") == [2.0] * 5
    assert rates("linear") == pytest.approx([2.0, 1.5, 1.0, 0.5, 0.0])
    assert rates("cosine") == pytest.approx([1 + math.cos(math.pi * k / 4) for k in range(5)], abs=1e-12)
    with pytest.raises(InputError, match=r"^schedule='step': must be one of constant, cosine, linear"):
        make_schedule("step", torch.optim.SGD(parameters(), lr=1.0), 3)
