"""Splits of tensors, the public assignment of rows, and the embedded digits."""

import gzip
import hashlib
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from tacit.core.errors import InputError
from tacit.datasets import CATALOGUE, Split, describe, load, locate_or_fetch
from tacit.datasets.partition import evenly_spread, public_uniforms, stratified_test_mask


@pytest.fixture
def split():
    return Split(torch.arange(20.0).view(10, 2), torch.arange(10))


@pytest.mark.parametrize("make", [list, np.array, torch.tensor])
def test_a_batch_of_indices_is_stacked(split, make):
    x, y = split[make([3, 1, 3])]
    assert torch.equal(y, torch.tensor([3, 1, 3]))
    assert torch.equal(x, split.inputs[[3, 1, 3]])


def test_an_empty_batch_keeps_the_shape(split):
    x, y = split[np.array([], dtype=np.int64)]
    assert x.shape == (0, 2)
    assert y.shape == (0,)
    assert split[[]][0].shape == (0, 2)


def test_one_index_is_one_pair_and_the_end_is_an_error(split):
    for index in (4, np.int64(4)):
        x, y = split[index]
        assert x.tolist() == [8.0, 9.0]
        assert y.item() == 4
    with pytest.raises(IndexError):
        split[10]
    with pytest.raises(IndexError):
        split[np.array([0, 10])]


def test_a_split_is_a_torch_data_set(split):
    x, y = next(iter(DataLoader(split, batch_size=4)))
    assert x.shape == (4, 2)
    assert y.tolist() == [0, 1, 2, 3]
    assert len(split) == 10


def test_unequal_lengths_are_refused():
    with pytest.raises(InputError, match="targets=2 rows: must be as many as the 3 inputs"):
        Split(torch.zeros(3, 1), torch.zeros(2))


def slow_uniform(index):
    """SplitMix64 with Python's own whole numbers."""
    word = 2**64
    mixed = (0x7461636974 + (index + 1) * 0x9E3779B97F4A7C15) % word
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % word
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % word
    return ((mixed ^ (mixed >> 31)) >> 11) / 2**53


def test_public_uniforms_are_fixed_for_ever():
    assert public_uniforms(3).tolist() == [0.4269446667149158, 0.36845981540623296, 0.21616395033143065]
    assert public_uniforms(500).tolist() == [slow_uniform(index) for index in range(500)]


@given(rows=st.integers(0, 300), more=st.integers(1, 50), start=st.integers(0, 10**6))
def test_a_row_keeps_its_number_whatever_comes_after(rows, more, start):
    whole = public_uniforms(rows + more, start=start)
    assert np.array_equal(whole[:rows], public_uniforms(rows, start=start))
    assert np.array_equal(whole[rows:], public_uniforms(more, start=start + rows))
    assert ((whole >= 0) & (whole < 1)).all()


def slow_spread(index: int) -> float:
    block = [slow_uniform(row) for row in range(index - index % 32, index - index % 32 + 32)]
    own = block[index % 32]
    return (sum(other < own for other in block) + own * 2**20 % 1) / 32


@given(st.integers(0, 5000), st.integers(1, 200), st.floats(0.01, 0.99))
def test_rows_are_spread_evenly_and_by_their_own_places(start, rows, fraction):
    found = evenly_spread(rows, start=start)
    assert found.tolist() == [slow_spread(start + row) for row in range(rows)]
    blocks = -(-(start + rows) // 32) - start // 32
    assert abs((found < fraction).sum() - fraction * rows) <= blocks + 32 * fraction
    assert np.array_equal(evenly_spread(rows + 1, start=start)[:rows], found)


@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.73])
def test_the_share_of_test_rows_is_right(fraction):
    count = int((evenly_spread(100_000) < fraction).sum())
    assert abs(count - 100_000 * fraction) < 5 * math.sqrt(100_000 / 32 / 4)  # one coin a block
    assert abs(count - 100_000 * (fraction + 0.01)) > 500


def test_public_uniforms_look_uniform():
    drawn = np.sort(public_uniforms(100_000))
    expected = (np.arange(100_000) + 0.5) / 100_000
    assert np.abs(drawn - expected).max() < 1.95 / np.sqrt(100_000)  # Kolmogorov-Smirnov at one in a thousand
    assert len(np.unique(drawn)) == 100_000


def test_stratified_mask_takes_its_share_of_each_class():
    labels = np.repeat(np.arange(3), (10, 25, 101))
    mask = stratified_test_mask(labels, 0.2)
    assert [int(mask[labels == label].sum()) for label in range(3)] == [2, 5, 20]


def test_digits_are_whole_scaled_and_always_split_alike():
    data = load("digits")
    assert (len(data.train), len(data.test)) == (1438, 359)
    assert data.input_shape == tuple(data.train.inputs.shape[1:]) == (1, 8, 8)
    assert data.train.inputs.dtype == torch.float32
    assert data.train.targets.dtype == torch.int64
    assert data.train.inputs.min() == 0
    assert data.train.inputs.max() == 1
    assert data.classes == 10
    shares = data.test.targets.bincount() / (data.test.targets.bincount() + data.train.targets.bincount())
    assert ((shares > 0.19) & (shares < 0.21)).all()
    content = (data.test.inputs * 16).to(torch.uint8).numpy().tobytes() + data.test.targets.numpy().tobytes()
    assert hashlib.sha256(content).hexdigest() == "351e83904bd30f053b5591c2718a854ec2521711122297f737d551276d160d90"


def test_digits_need_no_folder_and_no_network(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: pytest.fail("the network was used"))
    assert len(load().train) == 1438
    info = describe("digits").files[0]
    content = gzip.decompress((locate_or_fetch("digits") / info.published_name).read_bytes())
    assert hashlib.sha256(content).hexdigest() == info.sha256
    assert list(tmp_path.iterdir()) == []


def test_catalogue_is_consistent():
    images = ["digits", "mnist", "fashion-mnist", "cifar10", "cifar10-jpeg", "cifar100", "svhn", "svhn-extra"]
    assert list(CATALOGUE) == images
    for info in CATALOGUE.values():
        assert (info.tree is None) == bool(info.files)
        assert all(mirror.startswith("https://") and not mirror.endswith("/") for mirror in info.mirrors)
        for file in info.files:
            assert len(bytes.fromhex(file.sha256)) == 32
        assert len(bytes.fromhex(info.sha256)) == 32


@pytest.mark.parametrize(
    ("name", "remedy"), [("table.csv", "is for tacit train, linear and query"), ("what", "ending in .csv or .parquet")]
)
def test_what_is_no_named_set_may_be_a_table(name, remedy):
    with pytest.raises(InputError, match=remedy):
        describe(name)


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"dataset='mnsit': must be one of digits, .*Did you mean mnist\?"):
        describe("mnsit")
    with pytest.raises(InputError, match="A table is"):
        load("x")
