"""Features are computed once, kept by what they depend on, and never taken for those of other data or maps."""

import pytest
import torch
from torch import nn

from tacit.core.errors import InputError
from tacit.datasets import DataSet, Split, features, with_features
from tacit.models.scattering import Scattering


def small(train=20, test=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    splits = [Split(torch.rand(n, 1, 8, 8, generator=generator), torch.arange(n) % 2) for n in (train, test)]
    return DataSet("small", *splits, classes=2, input_shape=(1, 8, 8), source="here")


class Counting(nn.Module):
    """Scales, and counts the examples that it saw; what a block is filled up with is zero."""

    def __init__(self, factor=2.0):
        super().__init__()
        self.factor, self.seen = factor, 0

    def forward(self, inputs):
        self.seen += int(inputs.flatten(1).any(1).sum())
        return self.factor * inputs.flatten(1)


def test_features_take_the_place_of_inputs(tmp_path):
    dataset = small()
    scattering = Scattering((8, 8), scales=1)
    found = with_features(dataset, scattering, folder=tmp_path)
    assert found.input_shape == (9, 4, 4)
    assert found.name == dataset.name
    for before, after in ((dataset.train, found.train), (dataset.test, found.test)):
        torch.testing.assert_close(after.inputs, scattering(before.inputs))
        assert torch.equal(after.targets, before.targets)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_second_time_reads_what_was_kept(tmp_path):
    first, second = Counting(), Counting()
    due = with_features(small(), first, folder=tmp_path)
    found = with_features(small(), second, folder=tmp_path)
    assert torch.equal(found.train.inputs, due.train.inputs)
    assert torch.equal(found.test.inputs, due.test.inputs)
    assert first.seen == 26 + 6
    assert second.seen == 6  # the probes alone


@pytest.mark.parametrize("count", [1, 20, 600])
def test_maps_always_see_as_many_inputs(tmp_path, count):
    """Libraries choose their algorithm by the number of rows: one record more must not move the others' last digits."""
    sizes = []

    def doubled(inputs):
        sizes.append(len(inputs))
        return 2 * inputs

    dataset = small(train=count)
    assert torch.equal(with_features(dataset, doubled, folder=tmp_path).train.inputs, 2 * dataset.train.inputs)
    probes = min(count, 3)
    assert set(sizes) - {probes, 3} == {features._AT_ONCE}


def test_progress_is_told_where_features_are_computed(tmp_path):
    told = []
    for _ in range(2):
        with_features(small(), Counting(), folder=tmp_path, report=lambda done, inputs: told.append((done, inputs)))
    assert told == [(20, 20), (6, 6)]


def test_other_data_and_other_maps_have_files_of_their_own(tmp_path):
    with_features(small(), Counting(2.0), folder=tmp_path)
    changed = small()
    changed.train.inputs[17, 0, 3, 3] += 1e-3
    for dataset, transform in ((changed, Counting(2.0)), (small(), Counting(3.0)), (small(seed=1), Counting(2.0))):
        found = with_features(dataset, transform, folder=tmp_path)
        torch.testing.assert_close(found.train.inputs, transform.factor * dataset.train.inputs.flatten(1))


@pytest.mark.parametrize("damage", [b"", b"nonsense", None])
def test_damaged_files_are_computed_again(tmp_path, damage):
    due = with_features(small(), Counting(), folder=tmp_path)
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-7] if damage is None else damage)
    again = Counting()
    assert torch.equal(with_features(small(), again, folder=tmp_path).train.inputs, due.train.inputs)
    assert again.seen == 32
    with_features(small(), third := Counting(), folder=tmp_path)
    assert third.seen == 6


def test_half_precision_halves_the_files_and_comes_back_as_float32(tmp_path):
    whole = with_features(small(), Counting(), folder=tmp_path / "whole")
    for _ in range(2):
        half = with_features(small(), Counting(), half=True, folder=tmp_path / "half")
        assert half.train.inputs.dtype == torch.float32
        assert torch.equal(half.train.inputs, whole.train.inputs.half().float())
    sizes = [sum(p.stat().st_size for p in (tmp_path / name).iterdir()) for name in ("whole", "half")]
    assert sizes[1] < 0.6 * sizes[0]


def test_features_beyond_half_precision_are_refused(tmp_path):
    with pytest.raises(InputError, match="half=True: some feature is too large for float16"):
        with_features(small(), Counting(1e6), half=True, folder=tmp_path)


def test_the_cache_folder_is_where_features_go(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with_features(small(), Counting())
    assert len(list((tmp_path / "tacit" / "features").glob("*.safetensors"))) == 2


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path):
    (tmp_path / "file").write_text("in the way")
    found = with_features(small(), Counting(), folder=tmp_path / "file" / "features")
    assert len(found.train) == 20


def test_an_empty_split_has_empty_features(tmp_path):
    assert with_features(small(test=0), Counting(), folder=tmp_path).test.inputs.shape == (0, 64)


@pytest.mark.parametrize("bad", [lambda x: x.double(), lambda x: x[:1], lambda x: x.sum(0)])
def test_maps_that_are_none_are_refused(tmp_path, bad):
    with pytest.raises(InputError, match=r"transform: made .* one row for each input"):
        with_features(small(), bad, folder=tmp_path)
