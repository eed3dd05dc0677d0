"""A run's folder: run.json, history.jsonl and model.safetensors, each written so that a crash leaves it readable."""

import contextlib
import dataclasses
import datetime
import functools
import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from tacit.core.errors import InputError
from tacit.core.plain import to_json

SCHEMA_VERSION = 1
_PACKAGES = ("tacit", "torch", "numpy", "scipy", "dp-accounting", "scikit-learn")


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """Where one run leaves what may be released of it. Models are safetensors and JSON, never pickles.

    Files whose names begin with ``private`` are not to be released; `write_private` makes them so that their owner
    alone can read them.
    """

    path: Path

    @classmethod
    def create(cls, out: Path | None, name: str, *, goes_on: bool = False) -> "RunFolder":
        """Makes the folder, ``runs/NAME-TIME`` unless ``out`` says otherwise, and checks that it can be written.

        A folder that holds a run is refused, unless this is that run and ``goes_on``.
        """
        path = out or _fresh_path(Path("runs"), name)
        try:
            path.mkdir(parents=True, exist_ok=True)
            if (path / "run.json").exists() and not goes_on:
                raise InputError(f"out={str(path)!r}: already holds a run. Choose another folder.")
            probe = path / ".write-test"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise InputError(
                f"out={str(path)!r}: cannot be written ({error.strerror}). Choose a folder of your own with --out."
            ) from error
        return cls(path)

    def remove_if_empty(self) -> None:
        """Takes the folder away again where nothing was written to it."""
        with contextlib.suppress(OSError):
            self.path.rmdir()

    @contextlib.contextmanager
    def dropped_if_empty(self) -> Iterator[None]:
        """What fails or is stopped in here leaves no empty folder behind."""
        try:
            yield
        except BaseException:
            self.remove_if_empty()
            raise

    def write_run(self, record: dict[str, Any]) -> None:
        """Writes run.json in one piece: readers see the old one or the new one."""
        text = to_json({"schema": SCHEMA_VERSION, **record}, indent=2)
        partial = self.path / ".run.json.part"
        partial.write_text(text + "\n", encoding="utf-8")
        os.replace(partial, self.path / "run.json")

    def replace_run(self, record: dict[str, Any], model: nn.Module | None) -> None:
        """Leaves a record and its model, if it has one, in the place of what an earlier process left.

        Whenever that is cut, no model and no page stands beside the statement of another one.
        """
        for name in ("model.safetensors", "report.html"):
            (self.path / name).unlink(missing_ok=True)
        self.write_run(record)
        if model is not None:
            self.save_model(model)

    def write_private(self, name: str, content: bytes) -> Path:
        """Writes a file that its owner alone can read, in one piece, and says where it is."""
        partial = self.path / f".{name}.part"
        partial.unlink(missing_ok=True)  # another's permissions would stay
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        os.replace(partial, self.path / name)
        return self.path / name

    def append_history(self, point: dict[str, Any]) -> None:
        """Adds a line to history.jsonl."""
        with (self.path / "history.jsonl").open("a", encoding="utf-8") as file:
            file.write(to_json(point) + "\n")

    def save_model(self, model: nn.Module) -> None:
        """Writes model.safetensors; tied weights are written out under each of their names."""
        state = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in model.state_dict().items()}
        partial = self.path / ".model.safetensors.part"
        save_file(state, partial)
        os.replace(partial, self.path / "model.safetensors")


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """The versions that a result depends on; what runs without being installed, from its sources, has none.

    ``tacit_sources`` is the beginning of a digest of tacit's own files, which change between versions.
    """
    found = {"python": platform.python_version(), "tacit_sources": _digest_of_sources()}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@functools.cache
def _digest_of_sources() -> str:
    package = Path(__file__).parents[1]
    total = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        total.update(f"{path.relative_to(package).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()[:12]


def hardware(device: torch.device) -> dict[str, Any]:
    """What the run ran on."""
    gpu = {"gpu": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}
    return {
        "device": device.type,
        **gpu,
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def command_line() -> str:
    """The command that runs now, without the folder of the program."""
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])


def _fresh_path(parent: Path, name: str) -> Path:
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    base = parent / f"{name}-{stamp}"
    path, number = base, 2
    while path.exists():
        path, number = base.with_name(f"{base.name}-{number}"), number + 1
    return path
