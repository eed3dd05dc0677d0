"""Settings for all tests: examples and noise are the same each time, and a busy machine fails nothing."""

import collections
import dataclasses
import gc
import hashlib
import io
import itertools
import os
import pkgutil
import secrets
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

os.environ["COLUMNS"] = "200"  # before any console is made, so that tables are as wide whichever test comes first

settings.register_profile("tacit", deadline=None, derandomize=True)
settings.load_profile("tacit")

_HERE = os.getpid()
_keys_drawn: collections.defaultdict[str, Iterator[int]] = collections.defaultdict(itertools.count)


def _key_of_the_test(nbytes: int | None = None) -> bytes:
    """In place of the system's entropy: the next key of the test that runs, of which no two are equal.

    What a test draws is then the same each time, so that none fails once in a hundred runs; what a fixture of a whole
    module draws is that of the test which asks first. Owners of reservations come from here too. A process that a test
    forks has keys of its own, by its number, and programs that a test starts see nothing of this: both draw anew.
    """
    owner = os.environ.get("PYTEST_CURRENT_TEST", "collection") + (f" in {os.getpid()}" if os.getpid() != _HERE else "")
    key = hashlib.shake_256(f"{owner} {next(_keys_drawn[owner])}".encode())
    return key.digest(32 if nbytes is None else nbytes)


def pytest_configure(config: pytest.Config) -> None:
    patch = pytest.MonkeyPatch()
    patch.setattr(secrets, "token_bytes", _key_of_the_test)
    config.add_cleanup(patch.undo)


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end, so that no search for garbage has to look through them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _same_draws_of_torch(request: pytest.FixtureRequest) -> None:
    """Torch's own generator starts a test in the same state, whichever ran before it in the same process.

    By its name, since 0 is what tests and library seed it with themselves.
    """
    from tacit.gradients.model_state import seed_generators

    seed_generators(int.from_bytes(hashlib.sha256(request.node.nodeid.encode()).digest()[:7], "big"))


@pytest.fixture(autouse=True)
def _same_arithmetic() -> Iterator[None]:
    """Undoes what torch does where a processor has no bfloat16: the first product in it turns oneDNN off for good.

    Float32 products then round in another way, and a run that another process began cannot be replayed to the bit.
    """
    enabled = torch.backends.mkldnn.enabled
    yield
    if torch.backends.mkldnn.enabled != enabled:
        torch.backends.mkldnn.set_flags(enabled)


@pytest.fixture
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """``ctrl_c("package.module.function", 2)``: Ctrl-C in place of this call of the function, counted from 0."""

    def interrupt(target: str, call: int) -> None:
        calls, function = itertools.count(), pkgutil.resolve_name(target)

        def interrupted(*arguments, **options):
            if next(calls) == call:
                raise KeyboardInterrupt
            return function(*arguments, **options)

        monkeypatch.setattr(target, interrupted)

    return interrupt


@pytest.fixture
def small_cifar100(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """The records of an archive of a few dozen images that lies where CIFAR-100 is looked for, in its place."""
    from tacit.datasets.catalogue import CATALOGUE, FileInfo

    rng = np.random.default_rng(3)
    counts = {"train": 36, "test": 12}
    records = {name: rng.integers(0, 256, (count, 3074), dtype=np.uint8) for name, count in counts.items()}
    for part in records.values():
        part[:, 0] %= 20
        part[:, 1] %= 100
    path = tmp_path / "data" / "cifar100" / "cifar-100-binary.tar.gz"
    path.parent.mkdir(parents=True)
    with tarfile.open(path, "w:gz") as packed:
        for name, part in records.items():
            member = tarfile.TarInfo(f"cifar-100-binary/{name}.bin")
            member.size = part.size
            packed.addfile(member, io.BytesIO(part.tobytes()))
    content = path.read_bytes()
    file = FileInfo(path.name, len(content), hashlib.sha256(content).hexdigest())
    small = dataclasses.replace(CATALOGUE["cifar100"], train_examples=36, test_examples=12, files=(file,))
    monkeypatch.setattr("tacit.datasets.catalogue.CATALOGUE", {**CATALOGUE, "cifar100": small})
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return records
