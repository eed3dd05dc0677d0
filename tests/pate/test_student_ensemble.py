"""Several students as one: the mean of what they say, trained, saved and loaded like any other module."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

from tacit.core.errors import InputError
from tacit.core.randomness import Randomness
from tacit.datasets import DataSet, Split
from tacit.models import FIXED_FEATURES, MeanOfProbabilities, PublicMap
from tacit.pate.experiment import STAGES, run_pate
from tacit.pate.public_features import PublicFeatures
from tacit.pate.settings import Choices, pate_settings
from tacit.pate.students import Lesson, Perceptron, RunningTargets, StudentEnsemble
from tacit.training.run_folder import RunFolder

CLASSES, NUMBERS = 3, 6
QUICK = StudentEnsemble(
    networks=2,
    perceptrons=2,
    running=RunningTargets(steps=60, batch_size=32, learning_rate=0.02, average=0.9),
    perceptron=Perceptron(hidden=16, steps=60, batch_size=32, learning_rate=0.02, average=0.9, views=2),
)


def quiet(_share: float) -> None:
    return None


def clouds(count: int, seed: int = 0) -> Split:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    rows = 4 * torch.eye(CLASSES, NUMBERS)[labels] + torch.randn(count, NUMBERS, generator=generator)
    return Split(rows, labels)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(NUMBERS, 12), nn.ReLU(), nn.Linear(12, CLASSES))


def public_map(inputs: torch.Tensor) -> PublicMap:
    return PublicFeatures.learn(inputs, directions=4).after(None)


def taught(seed: int = 0, how: StudentEnsemble = QUICK, progress=quiet) -> tuple[nn.Module, PublicMap]:
    public = clouds(120)
    lesson = Lesson(public.inputs, public.inputs, torch.arange(15), public.targets[:15])
    see = public_map(public.inputs)
    torch.manual_seed(0)
    return how.taught(network(), lesson, build=network, see=see, seed=seed, progress=progress), see


def test_kinds_count_alike_whatever_the_number_of_their_members():
    public = clouds(60)
    see, how = public_map(public.inputs), dataclasses.replace(QUICK, networks=3, perceptrons=1)
    model = how.untrained(network, see, CLASSES)
    assert isinstance(model, MeanOfProbabilities)
    by_pixels, by_features = model.members
    wanted = (by_pixels(public.inputs).softmax(1) + by_features(public.inputs).softmax(1)) / 2
    torch.testing.assert_close(model(public.inputs).exp(), wanted)
    alone = dataclasses.replace(QUICK, perceptrons=0).untrained(network, see, CLASSES)
    assert len(alone.members) == 2


def test_it_learns_from_few_answers_and_tells_how_far_it_is():
    told: list[float] = []
    model, _ = taught(progress=told.append)
    test = clouds(300, seed=1)
    assert float((model(test.inputs).argmax(1) == test.targets).float().mean()) > 0.9
    assert told == sorted(told)
    assert told[-1] == 1
    assert not model.training


def test_the_seed_decides_and_members_differ():
    states = [torch.cat([p.detach().flatten() for p in taught(seed)[0].parameters()]) for seed in (1, 1, 2)]
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])
    (first, second), inputs = taught()[0].members[0].members, clouds(5).inputs
    assert not torch.equal(first(inputs), second(inputs))


def test_saved_and_loaded_it_is_itself(tmp_path):
    model, _ = taught()
    RunFolder(tmp_path).save_model(model)
    other = public_map(clouds(80, seed=5).inputs)  # the state brings its own map
    again = QUICK.untrained(network, other, CLASSES, seed=9).eval()
    inputs = clouds(50, seed=2).inputs
    assert not torch.equal(again(inputs), model(inputs))
    again.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(again(inputs), model(inputs))


def test_the_public_map_is_its_features_after_the_fixed_map():
    rows = clouds(1500).inputs
    features = PublicFeatures.learn(2 * rows, directions=3)

    class Twice(nn.Module):
        def forward(self, inputs):
            return 2 * inputs

    torch.testing.assert_close(features.after(Twice())(rows), features(2 * rows))


def test_perceptrons_learn_from_sure_targets_alone():
    data = clouds(200)
    half = torch.arange(200) < 100
    unsure = 0.8 * F.one_hot((data.targets + 1) % CLASSES, CLASSES) + 0.2 / CLASSES
    targets = torch.where(half[:, None], F.one_hot(data.targets, CLASSES).float(), unsure)
    how = dataclasses.replace(QUICK.perceptron, steps=150)
    right = []
    for given in (targets, unsure):
        model = how.build(NUMBERS, CLASSES, seed=0)
        seen = how.looked_at(data.inputs, nn.Identity(), seed=0)
        assert seen.shape == (3, 200, NUMBERS)
        how.learn(model, seen, given, seed=0, progress=quiet)
        right.append(float((model(data.inputs).argmax(1) == data.targets).float().mean()))
    assert right[0] > 0.95
    assert right[1] < 0.1  # none is sure: all of them count


def test_a_run_releases_the_ensemble_in_the_students_place():
    train, test = clouds(300, seed=3), clouds(200, seed=4)
    data = DataSet("clouds", train, test, CLASSES, (NUMBERS,), "made")
    few = {"teachers": 10, "queries": 30, "gamma": 2.0, "model": "mlp"}
    plan = pate_settings(data, Choices(student="ensemble", **few))
    assert plan.learning == "ensemble"
    told: dict[str, float] = {}
    small = dataclasses.replace(plan, ensemble=QUICK, student=dataclasses.replace(plan.student, steps=40))
    result = run_pate(data, small, Randomness(), progress=told.__setitem__)
    assert isinstance(result.model, MeanOfProbabilities)
    assert result.student_accuracy > 0.85
    assert told == dict.fromkeys(STAGES, 1.0)
    assert result.student_curve[-1][1] == pytest.approx(result.student_accuracy)
    steps = [step for step, _ in result.student_curve]
    assert steps == sorted(set(steps))
    assert steps[-1] == 40 + 2 * 60 + 2 * 60


def test_choices_for_an_ensemble_reach_it_and_no_other_student():
    data = DataSet("clouds", clouds(30), clouds(30), CLASSES, (NUMBERS,), "made")
    chosen = pate_settings(data, Choices(student="ensemble", networks=1, perceptrons=0, ensemble_steps=7)).ensemble
    assert chosen == StudentEnsemble(1, 0, RunningTargets(steps=7))
    assert pate_settings(data, Choices(student="ensemble")).ensemble == StudentEnsemble()
    assert pate_settings(data, Choices()).ensemble is None
    with pytest.raises(InputError, match="networks=2: is for student ensemble alone"):
        Choices(networks=2)
    with pytest.raises(InputError, match="networks=0"):
        StudentEnsemble(networks=0)


@pytest.mark.parametrize(
    ("name", "shape", "features"),
    [
        ("clouds", (NUMBERS,), "inputs"),
        ("fashion-mnist", (1, 28, 28), "scattering"),
        ("mnist", (1, 28, 28), "upright-scattering"),
    ],
)
def test_a_plan_names_the_map_that_its_perceptrons_look_through(name, shape, features):
    split = Split(torch.rand(30, *shape), torch.arange(30) % CLASSES)
    plan = pate_settings(DataSet(name, split, split, CLASSES, shape, "made"), Choices())
    assert plan.features == features
    if plan.fixed is not None:
        assert torch.equal(plan.fixed(split.inputs), FIXED_FEATURES[features](shape)(split.inputs))
    assert dataclasses.replace(plan, fixed=nn.Flatten()).features is None  # a user's own
