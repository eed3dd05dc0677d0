"""Where the rows of a run came from, so that their owner can find the same rows again."""

import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tacit.core.errors import InputError
from tacit.core.plain import to_json
from tacit.datasets.tables.schema import as_schema

if TYPE_CHECKING:
    from tacit.datasets.split import DataSet

_VERSION = 1


@dataclasses.dataclass(frozen=True)
class TableOrigin:
    """A file of rows and how they were read. Private: it says where people's records are, and a digest of them.

    Attributes:
        file: the table, as an absolute path.
        sha256: of the file. Rows are dealt to training and testing by their places, so that no other file will do.
        schema: the text of the TOML file with the public bounds and categories.
        target, features, test_fraction: as in `load_table`.
    """

    file: str
    sha256: str
    schema: str
    target: str
    features: tuple[str, ...] | None = None
    test_fraction: float | None = None

    FILE_NAME: ClassVar[str] = "private-table.json"  # in a run's folder, readable by its owner alone

    @classmethod
    def of(
        cls,
        file: str | Path,
        target: str,
        schema: Path,
        *,
        features: Sequence[str] | None = None,
        test_fraction: float | None = None,
    ) -> "TableOrigin":
        """Of files that were just read."""
        return cls(
            file=str(Path(file).resolve()),
            sha256=_sha256(Path(file)),
            schema=schema.read_text(encoding="utf-8"),
            target=target,
            features=None if features is None else tuple(features),
            test_fraction=test_fraction,
        )

    def to_bytes(self) -> bytes:
        """As a JSON file."""
        return to_json({"version": _VERSION, **dataclasses.asdict(self)}, indent=2).encode()

    def load(self, moved_to: Path | None = None) -> "DataSet":
        """The rows, from the file that the run read, or from where it was moved to.

        Raises:
            InputError: the file is missing, or is not the one that was read.
        """
        from tacit.datasets.tables.loading import load_table

        file = Path(self.file) if moved_to is None else moved_to
        if _sha256(file) != self.sha256:
            raise InputError(
                f"table={str(file)!r}: is not the file that the run read: its SHA-256 is another. Rows are members by "
                "their places, so that only that file will do. Restore it, and name it with --table if it was moved."
            )
        schema = as_schema(tomllib.loads(self.schema))
        return load_table(str(file), self.target, schema, features=self.features, test_fraction=self.test_fraction)


def read_origin(folder: Path) -> TableOrigin | None:
    """Where a run's rows came from; None where its folder does not say.

    Raises:
        InputError: the file that says so cannot be read.
    """
    path = folder / TableOrigin.FILE_NAME
    try:
        return _origin(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: cannot be read ({type(error).__name__}: {error}). Restore the file, or train again."
        ) from error


def _origin(values: Mapping[str, Any]) -> TableOrigin:
    if values["version"] != _VERSION:
        raise ValueError(f"version {values['version']!r} is not known")
    texts = {name: values[name] for name in ("file", "sha256", "schema", "target")}
    features, fraction = values["features"], values["test_fraction"]
    if not all(isinstance(text, str) for text in (*texts.values(), *(features or ()))):
        raise TypeError("a text is missing")
    tomllib.loads(texts["schema"])
    return TableOrigin(
        **texts,
        features=None if features is None else tuple(features),
        test_fraction=None if fraction is None else float(fraction),
    )


def _sha256(file: Path) -> str:
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"table={str(file)!r}: cannot be read ({error.strerror or error}). Name the run's table with --table."
        ) from error
