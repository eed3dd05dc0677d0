"""Students learn from answers, and the one that sees more learns more."""

import pytest
import torch
from torch import nn

from tacit.core import InputError
from tacit.datasets import Split
from tacit.pate.propagation import Propagation
from tacit.pate.students import FixMatch, Lesson, RunningTargets, SelfTraining, Student, Supervised

STUDENTS: list[Student] = [
    Supervised(steps=150),
    FixMatch(steps=150, batch_size=16),
    SelfTraining(steps=60, batch_size=32, average=0.9, propagation=Propagation(links=5)),
    RunningTargets(steps=100, batch_size=32, average=0.9, propagation=Propagation(links=5)),
]


def stripes(count: int, seed: int = 0) -> Split:
    """Images of 8 x 8 with a bar that lies or stands, in noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (count,), generator=generator)
    images = 0.2 * torch.rand(count, 1, 8, 8, generator=generator)
    images[:, :, 3:5, 1:7] += 0.8
    images[labels == 1] = images[labels == 1].transpose(2, 3)
    return Split(images, labels)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2))


def lesson(inputs: torch.Tensor, labels: torch.Tensor) -> Lesson:
    """The first inputs have the answers."""
    return Lesson(inputs, inputs.flatten(1), torch.arange(len(labels)), labels)


def accuracy(model: nn.Module, data: Split) -> float:
    with torch.no_grad():
        return float((model(data.inputs).argmax(1) == data.targets).float().mean())


@pytest.mark.parametrize("student", STUDENTS, ids=lambda student: student.name)
def test_learns_from_a_few_noisy_answers(student):
    public, test = stripes(200), stripes(200, seed=1)
    labels = public.targets[:20].clone()
    labels[0] = 1 - labels[0]
    model, told = network(), []
    student.teach(model, lesson(public.inputs, labels), seed=0, progress=told.append)
    assert accuracy(model, test) > 0.95
    assert told[-1] == 1
    assert not model.training


@pytest.mark.parametrize("student", STUDENTS, ids=lambda student: student.name)
def test_the_seed_decides(student):
    public = stripes(60)
    weights = []
    for seed in (3, 3, 4):
        model = network()
        student.teach(model, lesson(public.inputs, public.targets[:10]), seed=seed, progress=print)
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_inputs_that_are_not_images_do_too():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (100,), generator=generator)
    rows = torch.randn(100, 6, generator=generator) + 3 * labels[:, None]
    model = nn.Linear(6, 2)
    student = FixMatch(steps=300, learning_rate=0.02, average=0.9)
    student.teach(model, lesson(rows, labels[:30]), seed=0, progress=lambda _: None)
    assert accuracy(model, Split(rows, labels)) > 0.95


def test_no_answers_are_refused():
    public = stripes(10)
    with pytest.raises(InputError, match=r"answered=0: no question was answered. Ask more questions"):
        lesson(public.inputs, public.targets[:0])
