"""SVHN's cropped digits, on small files of the official format."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from scipy.io import savemat

from tacit.cli.data import list_sets
from tacit.core.errors import InputError
from tacit.datasets import CATALOGUE, load
from tacit.datasets.catalogue import FileInfo
from tacit.datasets.loading import read
from tacit.datasets.locating import locate
from tacit.datasets.svhn import read_svhn
from tacit.datasets.verification import content_digest

COUNTS = {"train_32x32.mat": 7, "test_32x32.mat": 4, "extra_32x32.mat": 5}


def images(count, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(1, 11, (count, 1), dtype=np.uint8)
    labels[0] = 10  # one digit 0 at least
    return {"X": rng.integers(0, 256, (32, 32, 3, count), dtype=np.uint8), "y": labels}


def write(path, arrays, *, compressed=True):
    savemat(path, arrays, do_compression=compressed)
    return path


@pytest.fixture
def small_sets(tmp_path, monkeypatch):
    """A folder of three small files in the place of the official ones, and the two sets that are made of them."""
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "svhn"
    folder.mkdir()
    facts = {}
    for seed, (name, count) in enumerate(COUNTS.items()):
        path = write(folder / name, images(count, seed))
        size = path.stat().st_size
        facts[name] = FileInfo(name, size, content_digest(path, unpack=False, limit=size))
    sets = {}
    for name, examples in (("svhn", 7), ("svhn-extra", 12)):
        official = CATALOGUE[name]
        files = tuple(facts[file.name] for file in official.files)
        sets[name] = dataclasses.replace(official, train_examples=examples, test_examples=4, files=files)
    monkeypatch.setattr("tacit.datasets.catalogue.CATALOGUE", {**CATALOGUE, **sets})
    return folder, sets


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("flat", [True, False], ids=["labels [N]", "labels [N, 1]"])
def test_every_pixel_and_label_has_its_place(tmp_path, compressed, flat):
    arrays = images(6)
    given = {"X": arrays["X"], "y": arrays["y"].ravel() if flat else arrays["y"]}
    pixels, labels = read_svhn(write(tmp_path / "a.mat", given, compressed=compressed))
    assert pixels.shape == (6, 3, 32, 32)
    assert pixels.dtype == np.uint8
    for image in range(6):
        for colour in range(3):
            assert np.array_equal(pixels[image, colour], arrays["X"][:, :, colour, image])
    assert labels[0] == 0
    assert labels.tolist() == [0 if label == 10 else label for label in arrays["y"].ravel().tolist()]


def test_labels_that_matlab_wrote_as_doubles(tmp_path):
    arrays = images(3)
    _, labels = read_svhn(write(tmp_path / "a.mat", {"X": arrays["X"], "y": arrays["y"].astype(float)}))
    assert labels.tolist() == (arrays["y"].ravel() % 10).tolist()


def test_the_named_set_and_the_one_with_extra_digits(small_sets):
    folder, _ = small_sets
    plain, whole = (load(name, download=False) for name in ("svhn", "svhn-extra"))
    assert plain.source == whole.source == str(folder)
    assert plain.input_shape == (3, 32, 32)
    assert plain.class_names == tuple("0123456789")
    assert len(plain.train) == 7
    assert len(whole.train) == 12
    assert torch.equal(whole.train.inputs[:7], plain.train.inputs)
    expected = torch.from_numpy(images(5, seed=2)["X"].transpose(3, 2, 0, 1) / np.float32(255))
    torch.testing.assert_close(whole.train.inputs[7:], expected)
    assert torch.equal(whole.test.inputs, plain.test.inputs)
    assert plain.train.inputs.dtype == torch.float32
    assert plain.train.inputs.is_contiguous()
    assert plain.test.targets.tolist() == (images(4, seed=1)["y"].ravel() % 10).tolist()


def test_the_extra_file_is_needed_for_the_extra_set_alone(small_sets):
    folder, _ = small_sets
    (folder / "extra_32x32.mat").unlink()
    assert len(load("svhn").train) == 7
    with pytest.raises(InputError) as refusal:
        load("svhn-extra")
    message = str(refusal.value)
    for part in ("dataset='svhn-extra': not found", "it has no download", f"make the folder {folder}", "extra_32x32"):
        assert part in message
    assert not (folder.parent / "cache").exists()


def test_a_file_that_is_not_the_official_one_is_refused(small_sets):
    folder, sets = small_sets
    write(folder / "test_32x32.mat", images(4, seed=9))
    with pytest.raises(InputError, match=r"test_32x32\.mat: the file is corrupt or truncated: expected SHA-256"):
        locate(sets["svhn"], download=False, progress=False)


def test_a_set_of_another_size_is_refused(small_sets):
    folder, sets = small_sets
    with pytest.raises(InputError, match=r"images of shape \(7, 3, 32, 32\): must be \(8, 3, 32, 32\)"):
        read(dataclasses.replace(sets["svhn"], train_examples=8), folder)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"X": np.zeros((32, 32, 3, 4), np.float32)}, r"X is float32 of shape \(32, 32, 3, 4\), must be uint8"),
        ({"X": np.zeros((4, 32, 32, 3), np.uint8)}, r"X is uint8 of shape \(4, 32, 32, 3\)"),
        ({"X": np.zeros((32, 32, 3), np.uint8)}, r"X is uint8 of shape \(32, 32, 3\)"),
        ({"y": np.ones((3, 1), np.uint8)}, "4 images and 3 labels"),
        ({"y": np.array([[1], [2], [0], [4]], np.uint8)}, "the label 0, must be 1 to 9, or 10 for the digit 0"),
        ({"y": np.array([[1], [2], [11], [4]], np.uint8)}, "the label 11"),
        ({"y": np.array([[1], [2], [3.5], [4]])}, "the label 3.5"),
        ({"y": np.array([[1], [2], [np.nan], [4]])}, "the label nan"),
        ({"y": "word"}, "y is <U4, must be of numbers"),
        ({"X": None}, "no array X"),
        ({"y": None}, "no array y"),
    ],
)
def test_arrays_that_are_not_as_they_should_be(tmp_path, changes, reason):
    arrays = {name: value for name, value in {**images(4), **changes}.items() if value is not None}
    path = write(tmp_path / "a.mat", arrays)
    with pytest.raises(InputError, match=f"a.mat: not a file of SVHN's cropped digits: .*{reason}.*official file"):
        read_svhn(path)


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"\x89HDF\r\n\x1a\n" + bytes(600)])
def test_files_of_another_kind(tmp_path, content):
    (tmp_path / "a.mat").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.mat: not a file of SVHN"):
        read_svhn(tmp_path / "a.mat")


def test_a_version_of_matlab_that_is_not_read(tmp_path):
    path = write(tmp_path / "a.mat", images(2))
    content = bytearray(path.read_bytes())
    content[124:126] = b"\x00\x02"  # the header of version 7.3, which is HDF5
    path.write_bytes(content)
    with pytest.raises(InputError, match="version 5 "):
        read_svhn(path)


@pytest.mark.parametrize("compressed", [True, False])
def test_a_file_that_was_cut_short_is_refused(tmp_path, compressed):
    whole = write(tmp_path / "a.mat", images(2), compressed=compressed).read_bytes()
    for length in range(0, len(whole) - 8, len(whole) // 40):
        (tmp_path / "b.mat").write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"b\.mat: not a file of SVHN") as refusal:
            read_svhn(tmp_path / "b.mat")
        assert "\n" not in str(refusal.value)


def test_the_list_names_both(capsys):
    list_sets(json=True)
    sets = {one["name"]: one for one in json.loads(capsys.readouterr().out)["sets"]}
    assert sets["svhn"]["homepage"] == "http://ufldl.stanford.edu/housenumbers/"
    assert sets["svhn"]["sha256"] != sets["svhn-extra"]["sha256"]
