"""Every file format, on small files made here."""

import gzip
import io
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from tacit.core.errors import InputError
from tacit.datasets.catalogue import FileInfo, ImageTree, SetInfo
from tacit.datasets.cifar import read_cifar10
from tacit.datasets.idx import read_idx
from tacit.datasets.jpeg import read_images
from tacit.datasets.loading import read
from tacit.datasets.verification import content_digest


def idx_bytes(array):
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes() + array.tobytes()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shape", [(7,), (3, 4, 5), (0, 4, 5)])
def test_idx_round_trip(tmp_path, packed, shape):
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    path = tmp_path / ("a.gz" if packed else "a")
    path.write_bytes(gzip.compress(idx_bytes(array)) if packed else idx_bytes(array))
    assert np.array_equal(read_idx(path), array)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "does not begin"),
        (b"\x01\x00\x08\x01", "does not begin"),
        (b"\x00\x00\x0d\x01\x00\x00\x00\x01\x00", "unsigned bytes"),
        (b"\x00\x00\x08\x03\x00\x00", "ends within its header"),
        (idx_bytes(np.zeros((2, 3), np.uint8))[:-1], r"shape \(2, 3\) asks for 18 bytes, it has 17"),
        (idx_bytes(np.zeros((2, 3), np.uint8)) + b"x", "asks for 18 bytes, it has 19"),
    ],
)
def test_broken_idx_files_are_refused(tmp_path, content, reason):
    (tmp_path / "broken").write_bytes(content)
    with pytest.raises(InputError, match=f"broken: not a whole idx file: .*{reason}"):
        read_idx(tmp_path / "broken")


def test_truncated_gzip_is_refused(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(idx_bytes(np.zeros((50, 50), np.uint8)))[:-12])
    with pytest.raises(InputError, match="cannot be unpacked"):
        read_idx(tmp_path / "a.gz")


def small_idx_set(folder, *, packed):
    """A set in MNIST's format with six and four images of 2x3 pixels."""
    rng = np.random.default_rng(1)
    arrays = {
        "train-images-idx3-ubyte": rng.integers(0, 256, (6, 2, 3), dtype=np.uint8),
        "train-labels-idx1-ubyte": rng.integers(0, 10, 6, dtype=np.uint8),
        "t10k-images-idx3-ubyte": rng.integers(0, 256, (4, 2, 3), dtype=np.uint8),
        "t10k-labels-idx1-ubyte": rng.integers(0, 10, 4, dtype=np.uint8),
    }
    files = []
    for name, array in arrays.items():
        content = idx_bytes(array)
        (folder / name).write_bytes(content)
        files.append(FileInfo(name, len(content), content_digest(folder / name, unpack=False, limit=10**6), True))
        if packed:
            (folder / name).unlink()
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    return arrays, SetInfo("mnist", "small", 10, (1, 2, 3), 6, 4, "https://example.org", files=tuple(files))


@pytest.mark.parametrize("packed", [False, True])
def test_an_idx_set_becomes_tensors(tmp_path, packed):
    arrays, info = small_idx_set(tmp_path, packed=packed)
    data = read(info, tmp_path)
    assert data.train.inputs.dtype == torch.float32
    expected = torch.from_numpy(arrays["t10k-images-idx3-ubyte"] / np.float32(255))[:, None]
    torch.testing.assert_close(data.test.inputs, expected)
    assert data.test.targets.tolist() == arrays["t10k-labels-idx1-ubyte"].tolist()
    assert data.source == str(tmp_path)
    assert data.class_names[3] == "3"


def test_a_set_of_the_wrong_shape_is_refused(tmp_path):
    _, info = small_idx_set(tmp_path, packed=False)
    wrong = SetInfo("mnist", "", 10, (1, 3, 2), 6, 4, "https://example.org", files=info.files)
    with pytest.raises(InputError, match=r"images of shape \(6, 1, 2, 3\): must be \(6, 1, 3, 2\)"):
        read(wrong, tmp_path)


def cifar_archive(path, batches):
    with tarfile.open(path, "w:gz") as packed:
        for name, content in batches.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))


def cifar_batches(images=2):
    rng = np.random.default_rng(2)
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    records = {name: rng.integers(0, 256, (images, 3073), dtype=np.uint8) for name in names}
    for array in records.values():
        array[:, 0] %= 10
    return records


def test_cifar_binary(tmp_path):
    records = cifar_batches()
    cifar_archive(tmp_path / "cifar-10-binary.tar.gz", {name: array.tobytes() for name, array in records.items()})
    (pixels, labels), (test_pixels, test_labels) = read_cifar10(tmp_path / "cifar-10-binary.tar.gz")
    assert pixels.shape == (10, 3, 32, 32)
    assert test_pixels.shape == (2, 3, 32, 32)
    assert labels.tolist() == [int(label) for i in range(1, 6) for label in records[f"data_batch_{i}.bin"][:, 0]]
    # The second image's green plane, row 3, column 5: one label byte, one plane, three rows, five columns.
    assert test_pixels[1, 1, 3, 5] == records["test_batch.bin"][1, 1 + 1024 + 3 * 32 + 5]
    assert test_labels.tolist() == records["test_batch.bin"][:, 0].tolist()


def test_cifar_through_the_loader(tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    cifar_archive(path, {name: array.tobytes() for name, array in cifar_batches().items()})
    file = FileInfo(path.name, path.stat().st_size, content_digest(path, unpack=False, limit=10**7))
    info = SetInfo("cifar10", "", 10, (3, 32, 32), 10, 2, "https://example.org", files=(file,))
    data = read(info, tmp_path)
    assert data.train.inputs.shape == (10, 3, 32, 32)
    assert data.class_names[9] == "truck"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda batches: batches.pop("data_batch_3.bin"), "holds no cifar-10-batches-bin/data_batch_3.bin"),
        (lambda batches: batches.update({"test_batch.bin": b"abc"}), "test_batch.bin has 3 bytes"),
        (lambda batches: batches.update({"test_batch.bin": b""}), "test_batch.bin has 0 bytes"),
        (lambda batches: batches.update({"test_batch.bin": bytes([11]) + bytes(3072)}), "holds the label 11"),
    ],
)
def test_broken_cifar_archives_are_refused(tmp_path, change, reason):
    batches = {name: array.tobytes() for name, array in cifar_batches().items()}
    change(batches)
    cifar_archive(tmp_path / "c.tar.gz", batches)
    with pytest.raises(InputError, match=reason):
        read_cifar10(tmp_path / "c.tar.gz")


def test_a_truncated_cifar_archive_is_refused(tmp_path):
    cifar_archive(tmp_path / "c.tar.gz", {name: array.tobytes() for name, array in cifar_batches().items()})
    (tmp_path / "c.tar.gz").write_bytes((tmp_path / "c.tar.gz").read_bytes()[:-5000])
    with pytest.raises(InputError, match="cannot be unpacked"):
        read_cifar10(tmp_path / "c.tar.gz")


@pytest.fixture
def image_folder(tmp_path):
    """Two classes, three images each to train on and one to test on, each of one colour."""
    folder = tmp_path / "set"
    for part, count in (("train", 3), ("test", 1)):
        for name, colour in (("cat", (250, 10, 10)), ("ant", (10, 10, 250))):
            (folder / part / name).mkdir(parents=True)
            for number in range(count):
                image = Image.new("RGB", (4, 6), colour)
                image.save(folder / part / name / f"{number:04}.jpg", quality=95)
    return folder


def tree_of(folder):
    """Finds the digest of the folder the way a mismatch reports it."""
    with pytest.raises(InputError) as refusal:
        read_images(folder, ImageTree(8, "0" * 64), folder, size=(6, 4), progress=False)
    return ImageTree(8, str(refusal.value).split("found ")[1][:64])


def test_jpeg_folders(image_folder, tmp_path):
    tree = tree_of(image_folder)
    arrays = read_images(image_folder, tree, tmp_path / "cache", size=(6, 4), progress=False)
    assert arrays["train_pixels"].shape == (6, 3, 6, 4)
    assert arrays["train_labels"].tolist() == [0, 0, 0, 1, 1, 1]
    assert arrays["test_labels"].tolist() == [0, 1]
    ant, cat = arrays["test_pixels"].mean(axis=(2, 3))
    assert ant[2] > 200 > 60 > ant[0]
    assert cat[0] > 200 > 60 > cat[2]


def test_decoded_images_are_kept_and_used_until_a_file_changes(image_folder, tmp_path, monkeypatch):
    tree = tree_of(image_folder)
    first = read_images(image_folder, tree, tmp_path / "cache", size=(6, 4), progress=False)
    assert (image_folder / "decoded.safetensors").is_file()
    with monkeypatch.context() as patch:
        patch.setattr("PIL.Image.open", lambda *_, **__: pytest.fail("decoded again"))
        again = read_images(image_folder, tree, tmp_path / "cache", size=(6, 4), progress=False)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    Image.new("RGB", (4, 6), (0, 255, 0)).save(image_folder / "test" / "ant" / "0000.jpg")
    with pytest.raises(InputError, match=f"expected SHA-256 {tree.sha256} over all files, found"):
        read_images(image_folder, tree, tmp_path / "cache", size=(6, 4), progress=False)


def test_decoded_images_that_were_touched_are_not_trusted(image_folder, tmp_path):
    tree = tree_of(image_folder)
    first = read_images(image_folder, tree, tmp_path / "cache", size=(6, 4), progress=False)
    kept = image_folder / "decoded.safetensors"
    kept.write_bytes(kept.read_bytes()[:-1] + b"\x01")
    again = read_images(image_folder, tree, tmp_path / "cache", size=(6, 4), progress=False)
    assert all(np.array_equal(first[name], again[name]) for name in first)


def test_decoded_images_go_to_the_cache_where_the_folder_is_not_writable(image_folder, tmp_path, monkeypatch):
    tree = tree_of(image_folder)
    save = __import__("safetensors.numpy").numpy.save_file

    def only_in_cache(arrays, path):
        if image_folder in path.parents:
            raise PermissionError(13, "Permission denied")
        save(arrays, path)

    monkeypatch.setattr("tacit.datasets.jpeg.save_file", only_in_cache)
    read_images(image_folder, tree, tmp_path / "cache", size=(6, 4), progress=False)
    assert (tmp_path / "cache" / "decoded.safetensors").is_file()
    monkeypatch.setattr("PIL.Image.open", lambda *_, **__: pytest.fail("decoded again"))
    read_images(image_folder, tree, tmp_path / "cache", size=(6, 4), progress=False)


def test_broken_image_folders_are_refused_by_name(image_folder, tmp_path):
    tree = ImageTree(8, "0" * 64)
    with pytest.raises(InputError, match=r"0000.jpg: an image of \(6, 4\) pixels, must be \(4, 4\)"):
        read_images(image_folder, tree, tmp_path, size=(4, 4), progress=False)
    victim = image_folder / "train" / "cat" / "0001.jpg"
    victim.write_bytes(victim.read_bytes()[:200])
    with pytest.raises(InputError, match=r"train/cat/0001.jpg: the image is corrupt or truncated"):
        read_images(image_folder, tree, tmp_path, size=(6, 4), progress=False)
    victim.unlink()
    with pytest.raises(InputError, match="holds 7 JPEG files below train and test, must be 8"):
        read_images(image_folder, tree, tmp_path, size=(6, 4), progress=False)
