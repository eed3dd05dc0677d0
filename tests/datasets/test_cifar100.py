"""CIFAR-100's binary version, on a small archive of the official format."""

import dataclasses
import io
import tarfile

import numpy as np
import pytest

from tacit.core.errors import InputError
from tacit.datasets import CATALOGUE, describe, load
from tacit.datasets.cifar import FINE_CLASS_NAMES, read_cifar100
from tacit.datasets.loading import read
from tacit.datasets.locating import search_folders


def archive(path, members):
    with tarfile.open(path, "w:gz") as packed:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))
    return path


def test_every_pixel_and_fine_label_has_its_place(small_cifar100):
    data = load("cifar100", download=False)
    assert data.train.inputs.shape == (36, 3, 32, 32)
    assert data.test.inputs.shape == (12, 3, 32, 32)
    assert data.train.targets.tolist() == small_cifar100["train"][:, 1].tolist()
    assert data.test.targets.tolist() == small_cifar100["test"][:, 1].tolist()
    # The second image's green plane, row 3, column 5: two label bytes, one plane, three rows, five columns.
    expected = small_cifar100["test"][1, 2 + 1024 + 3 * 32 + 5]
    assert round(255 * float(data.test.inputs[1, 1, 3, 5])) == expected
    assert data.classes == len(data.class_names) == 100


def test_classes_have_the_official_names():
    assert len(set(FINE_CLASS_NAMES)) == 100
    assert list(FINE_CLASS_NAMES) == sorted(FINE_CLASS_NAMES)  # as the official labels are
    assert (FINE_CLASS_NAMES[0], FINE_CLASS_NAMES[47], FINE_CLASS_NAMES[99]) == ("apple", "maple_tree", "worm")


def test_the_catalogue_has_the_official_archive():
    info = CATALOGUE["cifar100"]
    assert (info.train_examples, info.test_examples, info.input_shape) == (50_000, 10_000, (3, 32, 32))
    assert [file.name for file in info.files] == ["cifar-100-binary.tar.gz"]
    assert info.files[0].sha256 != CATALOGUE["cifar10"].files[0].sha256


def test_another_archive_is_refused_by_its_digest(small_cifar100):
    path = search_folders("cifar100")[0] / "cifar-100-binary.tar.gz"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(InputError, match=r"cifar-100-binary\.tar\.gz: the file is corrupt or truncated"):
        load("cifar100", download=False)


def test_another_number_of_images_is_refused(small_cifar100):
    info = dataclasses.replace(describe("cifar100"), train_examples=37)
    with pytest.raises(InputError, match=r"images of shape \(36, 3, 32, 32\): must be \(37, 3, 32, 32\)"):
        read(info, search_folders("cifar100")[0])


@pytest.mark.parametrize(
    ("train", "reason"),
    [
        (None, "it holds no cifar-100-binary/train.bin"),
        (bytes(3073), "train.bin has 3073 bytes, which is no multiple of 3074"),
        (b"", "train.bin has 0 bytes"),
        (bytes([0, 100]) + bytes(3072), "train.bin holds the label 100"),
    ],
)
def test_what_is_no_cifar100_is_refused(tmp_path, train, reason):
    members = {"cifar-100-binary/test.bin": np.zeros(3074, np.uint8).tobytes()}
    if train is not None:
        members["cifar-100-binary/train.bin"] = train
    path = archive(tmp_path / "c.tar.gz", members)
    with pytest.raises(InputError, match=f"c.tar.gz: not CIFAR-100's binary version: {reason}.*Delete it"):
        read_cifar100(path)
