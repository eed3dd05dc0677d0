"""Targets that move from what was given to what a network keeps saying, against plain loops and fixed targets."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tacit.core.errors import InputError
from tacit.pate.students import RunningTargets, running_targets
from tacit.pate.students.running_targets import MovingTargets
from tacit.training.averaging import WeightAverage

CLASSES, NUMBERS = 3, 20


def clouds(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    return 4 * torch.eye(CLASSES, NUMBERS)[labels] + torch.randn(count, NUMBERS, generator=generator), labels


def network() -> nn.Module:
    """So large that it can learn every label by heart."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(NUMBERS, 256), nn.ReLU(), nn.Linear(256, CLASSES))


def quiet(_share: float) -> None:
    return None


def test_means_run_and_targets_move_as_by_hand():
    rng = np.random.default_rng(0)
    given = rng.dirichlet(np.ones(4), 6)
    means, moving = given.copy(), MovingTargets(torch.from_numpy(given), 0.75)
    for _ in range(5):
        rows = rng.permutation(6)[:3]
        said = rng.dirichlet(np.ones(4), 3)
        moving.update(torch.from_numpy(rows), torch.from_numpy(said))
        for row, one in zip(rows, said, strict=True):
            means[row] = 0.75 * means[row] + 0.25 * one
    for share in (0.0, 0.4, 1.0):
        wanted = [
            (1 - share) * before + share * mean**2 / sum(mean**2) for before, mean in zip(given, means, strict=True)
        ]
        np.testing.assert_allclose(moving.targets(share).numpy(), wanted, rtol=1e-12)
        np.testing.assert_allclose(moving.targets(share, torch.tensor([4, 1])).numpy(), [wanted[4], wanted[1]])


@pytest.mark.parametrize("seed", [0, 1])
def test_it_unlearns_errors_that_fixed_targets_teach(seed):
    """A quarter of the targets is wrong, always in the same direction; the network could learn them all by heart."""
    generator = torch.Generator().manual_seed(seed)
    (inputs, labels), (others, truth) = clouds(300, generator), clouds(1000, generator)
    wrong = torch.rand(300, generator=generator) < 0.25
    given = 0.95 * F.one_hot(torch.where(wrong, (labels + 1) % CLASSES, labels), CLASSES) + 0.05 / CLASSES
    right, after = {}, {}
    for trust in (0.7, 0.0):
        model = network()
        student = RunningTargets(steps=500, batch_size=64, learning_rate=5e-4, average=0.95, trust=trust)
        ended = student.learn(model, inputs, given, seed=0, progress=quiet)
        right[trust] = float((model(others).argmax(1) == truth).float().mean())
        after[trust] = float((ended.argmax(1) == labels).float().mean())
    assert after[0.0] == pytest.approx(1 - float(wrong.float().mean()))
    assert after[0.7] > 0.93
    assert right[0.7] > right[0.0] + 0.04


def test_the_teacher_sees_slight_changes_and_the_student_strong_ones_until_the_end(monkeypatch):
    seen = {"slight": 0, "strong": 0}

    def spy(name, change):
        def changed(inputs, generator):
            seen[name] += 1
            return change(inputs, generator)

        return changed

    for name, function in (("slight", "slightly_changed"), ("strong", "bent_and_erased")):
        monkeypatch.setattr(running_targets, function, spy(name, getattr(running_targets, function)))
    inputs, labels = clouds(30, torch.Generator().manual_seed(0))
    given = F.one_hot(labels, CLASSES).float()
    RunningTargets(steps=20, batch_size=8).learn(network(), inputs, given, seed=0, progress=quiet)
    assert seen == {"slight": 20 + 5, "strong": 15}  # a calm end from 0.7 of the steps on


def test_the_teacher_is_the_average_of_the_weights(monkeypatch):
    """With an average that never moves, running means hold what the first weights say."""
    monkeypatch.setattr(WeightAverage, "update", lambda *_: None)
    monkeypatch.setattr(WeightAverage, "copy_to", lambda *_: None)
    inputs, labels = clouds(30, torch.Generator().manual_seed(0))
    model, given = network(), F.one_hot(labels, CLASSES).float()
    first = model(inputs).softmax(1).detach()
    student = RunningTargets(steps=60, batch_size=30, trust=1.0, memory=1e-6)
    ended = student.learn(model, inputs, given, seed=0, progress=quiet)
    assert (model(inputs).softmax(1) - first).abs().max() > 0.1
    torch.testing.assert_close(ended, first**2 / (first**2).sum(1, keepdim=True), rtol=0, atol=1e-4)


def test_targets_that_are_not_sure_teach_nothing_until_they_are():
    inputs, _ = clouds(30, torch.Generator().manual_seed(0))
    model, given = network(), torch.full((30, CLASSES), 1 / CLASSES)
    before = [p.detach().clone() for p in model.parameters()]
    RunningTargets(steps=5, batch_size=8, trust=0.0).learn(model, inputs, given, seed=0, progress=quiet)
    for weight, now in zip(before, model.parameters(), strict=True):
        torch.testing.assert_close(weight, now.detach(), rtol=1e-3, atol=1e-3)  # weight decay alone


def test_the_seed_decides_and_nothing_else():
    inputs, labels = clouds(40, torch.Generator().manual_seed(0))
    given = F.one_hot(labels, CLASSES).float()
    found = []
    for seed, disturbed in ((3, 0), (3, 1), (4, 0)):
        model = network()
        torch.manual_seed(disturbed)
        RunningTargets(steps=8, batch_size=16).learn(model, inputs, given, seed=seed, progress=quiet)
        found.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"trust": 1.5}, "trust=1.5: is a share"), ({"memory": 1.0}, "memory=1.0"), ({"steps": 0}, "steps=0")],
)
def test_wrong_settings_are_refused(wrong, said):
    with pytest.raises(InputError, match=said):
        RunningTargets(**wrong)
