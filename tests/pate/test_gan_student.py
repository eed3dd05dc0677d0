"""The student that plays against a generator: its losses against slow twins, and what the inputs teach it."""

import math

import mpmath
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tacit.core import InputError
from tacit.datasets import load
from tacit.models import build
from tacit.pate.students import Lesson, Supervised
from tacit.pate.students.gan import GAN, _Game, _generator, true_or_false_loss

QUICK = GAN(steps=400, learning_rate=5e-3, hidden=64, code=8)
outputs = st.lists(st.lists(st.floats(-300, 300), min_size=3, max_size=3), min_size=1, max_size=4)


def ridges(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two long, thin clouds, one above the other."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (count,), generator=generator)
    points = torch.randn(count, 2, generator=generator) * torch.tensor([2.0, 0.15])
    points[:, 1] += 2.0 * labels - 1
    return points, labels


def misleading() -> Lesson:
    """Answers from the left end of one cloud and the right end of the other: alone, they teach the wrong direction."""
    points, labels = ridges(400)
    ends = [(labels == 0) & (points[:, 0] < -1.5), (labels == 1) & (points[:, 0] > 1.5)]
    rows = torch.cat([end.nonzero()[:4, 0] for end in ends])
    return Lesson(points, points, rows, labels[rows])


def network() -> nn.Module:
    torch.manual_seed(1)
    layers = [nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 2)]
    return nn.Sequential(*layers)


def accuracy(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        return float((model(inputs).argmax(1) == labels).float().mean())


def quietly(_share: float) -> None:
    pass


@given(outputs, outputs)
def test_the_loss_is_that_of_one_class_more_whose_output_is_zero(true, false):
    """In 300 digits, class by class, also where a float's exponential would overflow."""
    with mpmath.workdps(300):

        def false_chance(row: list[float]) -> mpmath.mpf:
            return 1 / (1 + sum(mpmath.exp(value) for value in row))

        real = -sum(mpmath.log(1 - false_chance(row)) for row in true) / len(true)
        made_up = -sum(mpmath.log(false_chance(row)) for row in false) / len(false)
        expected = float((real + made_up) / 2)
    found = true_or_false_loss(*(torch.tensor(rows, dtype=torch.float64) for rows in (true, false)))
    assert float(found) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_values_worked_out_by_hand():
    # Two outputs of 0: Z = 2, so D = 2/3.
    zeros = torch.zeros(1, 2)
    assert float(true_or_false_loss(zeros, zeros)) == pytest.approx((math.log(3 / 2) + math.log(3)) / 2)
    # Sure of true and of false: no loss. The other way round: half the logsumexp of each.
    high, low = torch.full((1, 2), 50.0), torch.full((1, 2), -50.0)
    assert float(true_or_false_loss(high, low)) < 1e-20
    assert float(true_or_false_loss(low, high)) == pytest.approx(50)


def test_the_loss_is_the_cross_entropy_over_all_classes_and_the_false_one():
    """Known inputs pay by the chance of their class among the true ones: its logsumexp cancels."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 4, generator=generator).double()
    labels = torch.arange(6) % 4
    wide = torch.cat([logits, torch.zeros(6, 1).double()], dim=1)
    all_classes = F.cross_entropy(wide, labels)  # -log p(y) = -log p(y | true) - log p(true)
    is_true = 2 * true_or_false_loss(logits, torch.full((1, 4), -1e9).double())
    assert float(F.cross_entropy(logits, labels) + is_true) == pytest.approx(float(all_classes), rel=1e-12)


def test_inputs_without_answers_show_where_the_border_is():
    lesson, (points, labels) = misleading(), ridges(400, seed=1)
    alone, together, told = network(), network(), []
    Supervised(steps=400).teach(alone, lesson, seed=0, progress=quietly)
    QUICK.teach(together, lesson, seed=0, progress=told.append)
    assert accuracy(alone, points, labels) < 0.75
    assert accuracy(together, points, labels) > 0.95
    assert told == [(k + 1) / 400 for k in range(400)]
    assert not together.training


def test_digits_are_learned_from_few_answers():
    data = load("digits").train
    public, labels, held_out = data.inputs[:600], data.targets[:600], slice(600, 1200)
    torch.manual_seed(0)
    model = build("mlp", (1, 8, 8), 10)
    lesson = Lesson(public, public.flatten(1), torch.arange(60), labels[:60])
    GAN(steps=200, batch_size=32, learning_rate=4e-3, average=0.9).teach(model, lesson, seed=0, progress=quietly)
    assert accuracy(model, data.inputs[held_out], data.targets[held_out]) > 0.65


def test_the_seed_decides_and_the_global_generator_stays():
    lesson, weights = misleading(), []
    for elsewhere, seed in enumerate((3, 3, 4)):
        model = network()
        torch.manual_seed(elsewhere)
        expected = torch.rand(1)
        torch.manual_seed(elsewhere)
        GAN(steps=5, hidden=8, code=4).teach(model, lesson, seed=seed, progress=quietly)
        assert torch.equal(torch.rand(1), expected)
        weights.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("shape", [(3,), (1, 8, 8), (2, 5, 7)])
def test_what_is_made_up_looks_like_inputs_and_keeps_to_their_bounds(shape):
    generator = torch.Generator().manual_seed(0)
    like = 5 * torch.randn(50, *shape, generator=generator) + 3
    like[..., 0] = 4.0
    made_up = _generator(like, QUICK, seed=0)(10 * torch.randn(200, QUICK.code, generator=generator))
    assert made_up.shape == (200, *shape)
    low, high = like.aminmax(dim=0)
    assert ((made_up >= low - 1e-5) & (made_up <= high + 1e-5)).all()
    assert (made_up[..., 0] == 4).all()
    assert (made_up[..., 1:].std(0) > 0).all()


def test_the_generator_comes_to_match_the_features():
    """With the student at rest, what enters its last layer has the same mean for true and false inputs."""
    lesson = misleading()
    game = _Game(GAN(steps=300, batch_size=256, learning_rate=5e-3, hidden=32, code=8), network(), *parts(lesson), 0)
    before = game._generator_loss().item()
    for _ in range(200):
        game._update(1, game._generator_loss())
    assert 0 <= game._generator_loss().item() < 0.1 * before


def test_each_step_moves_its_own_player_alone():
    lesson, model = misleading(), network()
    game = _Game(QUICK, model, *parts(lesson), 0)
    for player, loss in ((0, game._student_loss), (1, game._generator_loss)):
        before = [[parameter.clone() for parameter in each.parameters()] for each in (model, game._generator)]
        game._update(player, loss())
        moved = [
            any(not torch.equal(old, new) for old, new in zip(olds, each.parameters(), strict=True))
            for olds, each in zip(before, (model, game._generator), strict=True)
        ]
        assert moved == [player == 0, player == 1]


def parts(lesson: Lesson):
    return lesson.answered, lesson.inputs


def test_bad_input_is_named():
    points, labels = ridges(10)
    with pytest.raises(InputError, match="answered=0: no question was answered"):
        QUICK.teach(network(), Lesson(points, points, torch.arange(0), labels[:0]), seed=0, progress=quietly)
    with pytest.raises(InputError, match="model: has no linear layer"):
        QUICK.teach(nn.PReLU(), misleading(), seed=0, progress=quietly)
    for name in ("steps", "hidden", "code", "weight", "learning_rate"):
        with pytest.raises(InputError, match=f"{name}=0"):
            GAN(**{name: 0})
    with pytest.raises(InputError, match=r"batch_size=1: must be at least 2. The generator normalises over the batch"):
        GAN(batch_size=1)
    with pytest.raises(InputError, match="average=1"):
        GAN(average=1)
