"""Canaries: places, coins, what each kind looks like, what is kept of them and who may read it."""

import dataclasses
import os
import stat

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.auditing.canaries import FEWEST, KINDS, Planting, plant, planting_of, read_planting
from tacit.core.errors import InputError, UnsupportedError
from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.datasets import DataSet, Split
from tacit.training import RunFolder

CLASSES = 4
TENSORS = ("places", "inputs", "targets", "included")


def data(examples=60, *, task="classification", shape=(2, 3), classes=CLASSES):
    """Every record is another one, and none is a canary."""
    inputs = 10.0 + torch.arange(examples * 6).reshape(examples, *shape).float()
    targets = torch.arange(examples) % classes
    if task == "regression":
        targets, classes = torch.linspace(-1, 1, examples), 1
    return DataSet("made", Split(inputs, targets), Split(inputs[:5], targets[:5]), classes, shape, "here", task=task)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_what_is_trained_on_is_every_other_record_and_the_canaries_that_are_there(kind, task):
    before = data(task=task)
    after, planting = plant(before, 20, kind, Randomness(unsafe_seed=3))
    assert len(planting) == 20
    assert len(set(planting.places.tolist())) == 20
    others = [row for row in range(60) if row not in set(planting.places.tolist())]
    expected = {before.train.inputs[row].numpy().tobytes(): before.train.targets[row].item() for row in others}
    there = planting.included
    for canary, target in zip(planting.inputs[there], planting.targets[there], strict=True):
        expected[canary.numpy().tobytes()] = target.item()
    trained = {x.numpy().tobytes(): y.item() for x, y in zip(after.train.inputs, after.train.targets, strict=True)}
    assert trained == expected
    assert len(after.train) == 40 + int(there.sum())
    assert after.train.inputs.dtype == before.train.inputs.dtype
    assert after.train.targets.dtype == before.train.targets.dtype
    assert after.test is before.test
    assert torch.equal(before.train.inputs, data(task=task).train.inputs)  # the owner's data are left as they were


@pytest.mark.parametrize("classes", [2, CLASSES])
def test_mislabelled_canaries_are_records_with_any_other_label(classes):
    before = data(600, classes=classes)
    planting = plant(before, 300, "mislabelled", Randomness(unsafe_seed=1))[1]
    true = before.train.targets[planting.places]
    assert torch.equal(planting.inputs, before.train.inputs[planting.places])
    assert (planting.targets != true).all()
    assert set(((planting.targets - true) % classes).tolist()) == set(range(1, classes))
    assert ((planting.targets >= 0) & (planting.targets < classes)).all()


def test_a_mislabelled_regression_lies_at_the_farther_end():
    before = data(task="regression")
    planting = plant(before, 20, "mislabelled", Randomness(unsafe_seed=1))[1]
    true = before.train.targets[planting.places]
    assert set(planting.targets.tolist()) == {-1.0, 1.0}
    assert ((planting.targets - true).abs() >= 1).all()


def test_blank_and_adversarial_canaries_do_not_look_at_the_records():
    """So that what is computed from them is post-processing of the model."""
    one, other = data(), data()
    other = dataclasses.replace(other, train=Split(other.train.inputs * -7, 3 - other.train.targets))
    for kind in ("blank", "adversarial"):
        first, second = (plant(each, 20, kind, Randomness(unsafe_seed=5))[1] for each in (one, other))
        assert not first.of_people
        for name in TENSORS:
            assert torch.equal(getattr(first, name), getattr(second, name))
    assert plant(one, 20, "mislabelled", Randomness())[1].of_people


def test_blank_canaries_are_blank_but_for_a_mark_and_adversarial_ones_are_directions():
    blank = plant(data(), 20, "blank", Randomness())[1].inputs.flatten(1)
    assert ((blank != 0).sum(1) == 3).all()
    assert (blank[blank != 0] >= 0.5).all()
    assert (blank <= 1).all()
    planted = plant(data(400), 200, "adversarial", Randomness(unsafe_seed=0))[1].inputs.flatten(1)
    assert torch.allclose(planted.norm(dim=1), torch.tensor(0.3 * 6**0.5))
    cosines = torch.nn.functional.cosine_similarity(planted[:-1], planted[1:])
    assert abs(cosines.mean()) < 4 / (6 * 199) ** 0.5
    assert 0.8 < cosines.std() * 6**0.5 < 1.2


@pytest.mark.parametrize("kind", ["blank", "adversarial"])
def test_no_two_canaries_are_alike_even_of_few_inputs(kind):
    inputs = torch.rand(100, 2)
    small = DataSet("made", Split(inputs, torch.zeros(100).long()), Split(inputs, torch.zeros(100).long()), 2, (2,), "")
    assert len(plant(small, 50, kind, Randomness())[1].inputs.unique(dim=0)) == 50


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(FEWEST, 30), kind=st.sampled_from(sorted(KINDS)))
def test_a_planting_survives_its_file(tmp_path_factory, seed, count, kind):
    before = data()
    after, planting = plant(before, count, kind, Randomness(unsafe_seed=seed))
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    folder.write_private(Planting.FILE_NAME, planting.to_bytes())
    again = read_planting(folder.path)
    assert again.facts() == planting.facts() == {"kind": kind, "count": count}
    assert again.shape == planting.shape
    planted = again.plant(before)
    assert torch.equal(planted.train.inputs, after.train.inputs)
    assert torch.equal(planted.train.targets, after.train.targets)
    assert torch.equal(again.included, planting.included)


def test_the_file_is_for_its_owner_alone_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        folder = RunFolder(tmp_path)
        (tmp_path / f".{Planting.FILE_NAME}.part").touch(mode=0o666)  # left by a process that died
        folder.write_private(Planting.FILE_NAME, b"secret")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / Planting.FILE_NAME).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [Planting.FILE_NAME]


def coins(bias=0.5, plantings=40):
    """The coins of many plantings; ``bias`` spoils them."""
    found = torch.cat(
        [plant(data(1000), 500, "blank", Randomness(unsafe_seed=seed))[1].included for seed in range(plantings)]
    )
    spoilt = np.random.default_rng(0).random(len(found)) < 2 * (bias - 0.5)
    return found.numpy() | spoilt


def test_coins_are_fair_and_independent():
    """Of 20,000 coins, with a test that notices 0.53 in the place of 0.5: that lies 8.5 standard deviations away."""
    fair = coins()
    assert stats.binomtest(int(fair.sum()), len(fair)).pvalue > 1e-4
    assert stats.binomtest(int(coins(0.53).sum()), len(fair)).pvalue < 1e-4
    agree = int((fair[1:] == fair[:-1]).sum())
    assert stats.binomtest(agree, len(fair) - 1).pvalue > 1e-4


def test_places_are_even_and_coins_do_not_depend_on_them():
    counts, there = np.zeros(100), np.zeros(100)
    for seed in range(400):
        planting = plant(data(100), 50, "blank", Randomness(unsafe_seed=seed))[1]
        counts[planting.places.numpy()] += 1
        there[planting.places[planting.included].numpy()] += 1
    assert stats.chisquare(counts).pvalue > 1e-4
    assert stats.chisquare(there).pvalue > 1e-4


def test_two_plantings_differ_without_a_seed():
    first, second = (plant(data(1000), 200, "blank", Randomness())[1] for _ in range(2))
    assert first.mark() != second.mark()
    assert not torch.equal(first.included, second.included)
    assert not torch.equal(first.places, second.places)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mark_says_nothing_of_coins_and_records(kind):
    """Whoever guesses all but one coin must not be able to try it out on the mark."""
    planting = plant(data(), 20, kind, Randomness(unsafe_seed=0))[1]
    other = dataclasses.replace(planting, included=~planting.included, inputs=planting.inputs + 1)
    assert other.mark() == planting.mark()
    assert dataclasses.replace(planting, places=planting.places + 1).mark() != planting.mark()


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"count": FEWEST - 1}, ("canaries=9", "at least 10")),
        ({"count": 31}, ("canaries=31", "half of the 60", "Plant fewer")),
        ({"count": 12.5}, ("canaries=12.5", "whole number")),
        ({"kind": "yellow"}, ("canary_kind='yellow'", "adversarial, blank, mislabelled")),
        ({"neighbours": Neighbours.REPLACE_ONE}, ("replace-one", "poisson")),
        ({"neighbours": Neighbours.ZERO_OUT}, ("zero-out", "poisson")),
    ],
)
def test_refusals(changes, parts):
    asked = {"count": 20, "kind": "blank", **changes}
    with pytest.raises((InputError, UnsupportedError)) as refused:
        plant(data(), asked.pop("count"), asked.pop("kind"), Randomness(), **asked)
    assert all(part in str(refused.value) for part in parts), refused.value


def test_a_folder_without_canaries_and_a_damaged_file_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"is missing.*Restore it.*--canaries"):
        read_planting(tmp_path)
    planting = plant(data(), 20, "blank", Randomness())[1]
    path = tmp_path / Planting.FILE_NAME
    path.write_bytes(planting.to_bytes()[:200])
    with pytest.raises(InputError, match="cannot be read"):
        read_planting(tmp_path)
    for changes in ({"kind": "yellow"}, {"included": planting.included[:3]}, {"included": planting.places + 1}):
        path.write_bytes(dataclasses.replace(planting, **changes).to_bytes())
        with pytest.raises(InputError, match="known form"):
            read_planting(tmp_path)


def _changed(tensor, value):
    """With another value in the first place."""
    return torch.cat([torch.full_like(tensor[:1], value), tensor[1:]])


_SPOILT = {
    "negative place": ("places", lambda p: {"places": _changed(p.places, -1)}),
    "place twice": ("places", lambda p: {"places": _changed(p.places, int(p.places[1]))}),
    "places that are no whole numbers": ("places", lambda p: {"places": p.places.double()}),
    "places in rows": ("places", lambda p: {"places": p.places[:, None]}),
    "too few": ("places", lambda p: {name: getattr(p, name)[:9] for name in TENSORS}),
    "coins that are numbers": ("included", lambda p: {"included": p.included.long()}),
    "inputs cut": ("inputs", lambda p: {"inputs": p.inputs[..., :2]}),
    "inputs not finite": ("inputs", lambda p: {"inputs": _changed(p.inputs, float("nan"))}),
    "inputs that are bytes": ("inputs", lambda p: {"inputs": p.inputs.to(torch.uint8)}),
    "a class that is none": ("targets", lambda p: {"targets": _changed(p.targets, CLASSES)}),
    "a class below all": ("targets", lambda p: {"targets": _changed(p.targets, -1)}),
    "targets of a regression": ("targets", lambda p: {"targets": p.targets.double()}),
    "another task": ("shape", lambda p: {"shape": {**p.shape, "task": "zzz"}}),
    "a regression": ("targets", lambda p: {"shape": {**p.shape, "task": "regression"}}),
    "columns that are a word": ("shape", lambda p: {"shape": {**p.shape, "columns": "abc"}}),
    "a column without a width": ("shape", lambda p: {"shape": {**p.shape, "columns": [["number"]]}}),
    "a size that is none": ("shape", lambda p: {"shape": {**p.shape, "input_shape": [2, "3"]}}),
    "no classes": ("shape", lambda p: {"shape": {**p.shape, "classes": 0}}),
    "no task": ("shape", lambda p: {"shape": {"input_shape": [2, 3], "classes": CLASSES, "columns": []}}),
}


@pytest.mark.parametrize("spoilt", _SPOILT)
def test_a_file_that_was_changed_is_refused_by_the_part_that_is_wrong(spoilt, tmp_path):
    part, changes = _SPOILT[spoilt]
    planting = plant(data(), 20, "blank", Randomness(unsafe_seed=0))[1]
    path = tmp_path / Planting.FILE_NAME
    path.write_bytes(planting.to_bytes())
    assert len(read_planting(tmp_path)) == 20
    path.write_bytes(dataclasses.replace(planting, **changes(planting)).to_bytes())
    with pytest.raises(InputError, match=rf"known form \({part}\)"):
        read_planting(tmp_path)


def test_a_run_that_goes_on_keeps_its_canaries(tmp_path):
    assert planting_of(tmp_path, None, None) is planting_of(None, None, None) is None
    for asked in ((20, None), (None, "blank")):  # never new ones: their coins would not be those of the model
        with pytest.raises(InputError, match=r"in its folder\. Name that with --out"):
            planting_of(None, *asked)
        with pytest.raises(InputError, match=f"{Planting.FILE_NAME} is missing"):
            planting_of(tmp_path, *asked)
    (tmp_path / Planting.FILE_NAME).write_bytes(plant(data(), 20, "blank", Randomness())[1].to_bytes())
    assert len(planting_of(tmp_path, None, None)) == len(planting_of(tmp_path, 20, "blank")) == 20
    with pytest.raises(InputError, match="canaries=21"):
        planting_of(tmp_path, 21, None)
    with pytest.raises(InputError, match="canary_kind='adversarial'"):
        planting_of(tmp_path, 20, "adversarial")
