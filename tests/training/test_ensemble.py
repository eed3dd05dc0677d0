"""Networks that train together become what each would have become alone."""

import pytest
import torch
from torch import Tensor, nn

from tacit.training.ensemble import Fitting, Stack

QUICK = Fitting(steps=20, batch_size=8, learning_rate=0.02)
CPU = torch.device("cpu")


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3))


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def convolutional() -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 3, 2), nn.Flatten(), nn.ReLU(), nn.Linear(3, 3))


def records() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 3, (90,), generator=generator)
    inputs = torch.randn(90, 4, generator=generator)
    inputs[torch.arange(90), targets] += 4.0
    return inputs, targets


def check_same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("build", [plain, convolutional])
def test_together_equals_one_after_the_other(build):
    (inputs, targets), seeds = records(), [3, 4, 5]
    parts = [torch.arange(k, 90 - 10 * k, 3) for k in range(3)]  # of different sizes
    together = Stack(build, seeds, CPU)
    together.fit(inputs, targets, parts, QUICK, lambda _: None)
    for place, seed in enumerate(seeds):
        alone = Stack(build, [seed], CPU)
        alone.fit(inputs, targets, [parts[place]], QUICK, lambda _: None)
        check_same(alone.state(0), together.state(place))


def test_answers_are_those_of_each_network_in_evaluation_mode():
    inputs, targets = records()
    stack = Stack(network, [1, 2], CPU)
    stack.fit(inputs, targets, [torch.arange(40), torch.arange(90)], QUICK, lambda _: None)
    answers = stack.answers(inputs, rows_at_once=7)
    assert torch.equal(answers.argmax(2), stack.predictions(inputs))
    for number in range(2):
        alone = network()
        alone.load_state_dict(stack.state(number))
        with torch.no_grad():
            torch.testing.assert_close(answers[number], alone.eval()(inputs))
