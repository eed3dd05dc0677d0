"""What can be audited: the folders that ``tacit train``, ``tacit pate`` and ``tacit linear --out`` leave."""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from tacit.auditing.attacked import AttackedRecords
from tacit.auditing.canaries import Planting, read_planting, shape_of
from tacit.auditing.findings import Claim
from tacit.auditing.released_models import linear_model, released_model, released_student
from tacit.core.errors import InputError
from tacit.datasets import CATALOGUE, DataSet, load
from tacit.datasets.tables.origin import TableOrigin, read_origin
from tacit.training.run_folder import SCHEMA_VERSION

_MODEL, _RUN, _LINEAR_MODEL = "model.safetensors", "run.json", "model.json"


@dataclasses.dataclass(frozen=True, eq=False)
class ReleasedRun:
    """A run to audit.

    Attributes:
        folder: where it lies.
        name, dataset: of the run and of what it was trained on.
        network: a name of `tacit.models.MODELS`: what was trained; of an ensemble, its networks.
        sentence: its statement.
        claim: what that claims.
        model: as it was released, on the CPU.
        planting: its canaries; None for a run without.
        records: members and non-members; None where the data are not at hand. There are canaries then.
    """

    folder: Path
    name: str
    dataset: str
    network: str
    sentence: str
    claim: Claim
    model: nn.Module
    planting: Planting | None
    records: AttackedRecords | None


def read_released(folder: Path, *, table: Path | None = None) -> ReleasedRun:
    """The run of a folder.

    Args:
        folder: of the run.
        table: where the table of its rows lies now, if it was moved.

    Raises:
        InputError: the folder is none of a run that can be attacked, or a file of it cannot be read; its records are
            not at hand and it has no canaries; ``table`` is not the table of the run.
    """
    if (folder / _RUN).exists():
        record = _read_json(folder / _RUN)
        if "teachers" in record:
            _refuse_table(table)
            return _of_pate(folder, record)
        if {"dataset", "model", "plan"} <= record.keys():
            return _of_training(folder, record, table)
    elif (folder / _LINEAR_MODEL).exists():
        return _of_linear(folder, _read_json(folder / _LINEAR_MODEL), table)
    raise InputError(
        f"run={str(folder)!r}: holds no run that can be attacked. tacit audit reads the folders of tacit train, tacit "
        "pate and tacit linear --out. Give one of them."
    )


def _of_training(folder: Path, record: Mapping[str, Any], table: Path | None) -> ReleasedRun:
    """The record says what was trained on. Another run that was killed may have left its private files beside it."""
    _check_schema(folder, record)
    planting = None if _mapping(record["plan"]).get("canaries") is None else read_planting(folder)
    dataset, network = str(record["dataset"]), str(record["model"])
    origin = None if dataset in CATALOGUE else read_origin(folder)
    if origin is None:
        _refuse_table(table)
    data = _named(dataset) if origin is None else _rows(origin, table, needed=planting is None)
    if data is not None:
        shape: Mapping[str, Any] = shape_of(data)
    elif planting is not None:
        shape = planting.shape
    else:
        raise InputError(
            f"run={str(folder)!r}: no canaries were planted in it, and its records ({dataset}) are not at hand. Fetch "
            "them with tacit data get, or train again, with --canaries M for a bound on epsilon."
        )
    if data is not None and planting is not None:
        _check_alike(dataset, data, planting)
    return ReleasedRun(
        folder=folder,
        name=str(record.get("name") or folder.resolve().name),
        dataset=dataset,
        network=network,
        model=released_model(folder / _MODEL, network, shape),
        planting=planting,
        records=None if data is None else AttackedRecords.of_training(data, planting),
        **_statement(folder / _RUN, record),
    )


def _of_pate(folder: Path, record: Mapping[str, Any]) -> ReleasedRun:
    _check_schema(folder, record)
    statement = _statement(folder / _RUN, record)
    dataset, plan = str(record.get("dataset")), _mapping(record.get("plan"))
    data = _named(dataset)
    if data is None:
        raise InputError(
            f"dataset={dataset!r}: is not at hand, so that no record can be attacked. Get it: tacit data get."
        )
    public, count = plan.get("public"), _number(plan.get("public_inputs"))
    if public is None or count is None:
        raise InputError(
            f"{folder / _RUN}: does not say which part of the test split the student saw. Run tacit pate again."
        )
    network, model = released_student(folder / _MODEL, shape_of(data), plan.get("features"))
    return ReleasedRun(
        folder=folder,
        name=folder.resolve().name,
        dataset=dataset,
        network=network,
        model=model,
        planting=None,
        records=AttackedRecords.of_pate(data, public=str(public), public_inputs=int(count)),
        **statement,
    )


def _of_linear(folder: Path, release: Mapping[str, Any], table: Path | None) -> ReleasedRun:
    path = folder / _LINEAR_MODEL
    statement = _statement(path, release)
    origin = read_origin(folder)
    if origin is None:
        raise InputError(
            f"run={str(folder)!r}: does not say where its rows came from ({TableOrigin.FILE_NAME} is missing), as fits "
            "with --split-seed do not. Fit again with tacit linear --out."
        )
    data = origin.load(table)
    if list(data.feature_names) != release.get("features"):
        raise InputError(f"{path}: its features are not those of {origin.file}. Restore the file, or fit again.")
    return ReleasedRun(
        folder=folder,
        name=folder.resolve().name,
        dataset=data.name,
        network="linear",
        model=linear_model(path, release, data),
        planting=None,
        records=AttackedRecords.of_training(data),
        **statement,
    )


def _named(dataset: str) -> DataSet | None:
    """The records of a named set; None for another one, or where no folder holds the set."""
    if dataset not in CATALOGUE:
        return None
    try:
        return load(dataset, download=False)
    except InputError:
        return None


def _rows(origin: TableOrigin, table: Path | None, *, needed: bool) -> DataSet | None:
    """The rows of a table; None where they are gone and there are canaries to audit without them."""
    if table is None and not needed and not Path(origin.file).exists():
        return None
    return origin.load(table)


def _check_alike(dataset: str, data: DataSet, planting: Planting) -> None:
    if shape_of(data) != dict(planting.shape) or int(planting.places.max()) >= len(data.train):
        raise InputError(
            f"dataset={dataset!r}: its records are not those that the canaries were made for. Restore run.json, or "
            "train again."
        )


def _refuse_table(table: Path | None) -> None:
    if table is not None:
        raise InputError(
            f"table={str(table)!r}: the run does not say that its rows came from a table, and which file that was. "
            "Leave it out, or train again."
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error}). Run again, or restore the file.") from error
    if not isinstance(value, dict):
        raise InputError(f"{path}: must hold one JSON object. Run again, or restore the file.")
    return value


def _check_schema(folder: Path, record: Mapping[str, Any]) -> None:
    if record.get("schema") != SCHEMA_VERSION:
        raise InputError(
            f"schema={record.get('schema')!r} in {folder / _RUN}: this tacit reads {SCHEMA_VERSION}. Install the tacit "
            "that wrote it."
        )


def _statement(path: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """The sentence of a statement, and the claim in it."""
    statement = _mapping(record.get("statement"))
    if not statement.get("sentence"):
        raise InputError(f"{path}: has no statement, so that there is no claim to test. Run again.")
    claim = Claim.of_statement(_number(statement.get("epsilon")), _number(statement.get("delta")))
    return {"sentence": str(statement["sentence"]), "claim": claim}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
