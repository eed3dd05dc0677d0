"""An audit of a run: its released model, the canaries that were planted for it, and the records if they are at hand."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from tacit import models
from tacit.auditing.black_box import audit_canaries, record_scores
from tacit.auditing.canaries import Planting
from tacit.auditing.findings import Attack, Claim, Finding
from tacit.auditing.roc import Roc
from tacit.core.errors import InputError
from tacit.core.validation import check_open_unit
from tacit.datasets import CATALOGUE, DataSet, load


def audit_released(
    model: nn.Module, planting: Planting, claim: Claim, data: DataSet | None, *, confidence: float = 0.95
) -> Finding:
    """What a released model gives away.

    Args:
        model: as it was released.
        planting: the canaries of its run.
        claim: the run's statement.
        data: as they were before canaries were planted. Without them no record is attacked.
        confidence: of bounds and intervals.

    The attack on records is a threshold on the loss. Members are the records that were trained on; non-members the test
    split, and the records whose places were drawn for canaries. No coin dealt these splits, so that the claim puts no
    ceiling on the attack, and it refutes nothing.
    """
    check_open_unit("confidence", confidence, remedy="Usual is 0.95.")
    return Finding(
        name="released model",
        claim=claim,
        confidence=confidence,
        canaries=audit_canaries(model, planting, delta=claim.delta, confidence=confidence),
        attacks=[] if data is None else [_loss_attack(model, planting, data)],
        by_coins=False,
        paid_for=True,
    )


def _loss_attack(model: nn.Module, planting: Planting, data: DataSet) -> Attack:
    trained_on = torch.ones(len(data.train), dtype=torch.bool)
    trained_on[planting.places] = False
    left_out = torch.zeros_like(trained_on)
    # Somebody's mislabelled record that was there is neither: its input was trained on, its label was not.
    left_out[planting.places[~planting.included] if planting.of_people else planting.places] = True
    train = record_scores(model, data.train.inputs, data.train.targets)
    test = record_scores(model, data.test.inputs, data.test.targets)
    return Attack("loss", Roc(train[trained_on.numpy()], np.concatenate([test, train[left_out.numpy()]])))


def records_at_hand(dataset: str, planting: Planting) -> DataSet | None:
    """The records of the named set that a run was trained on; None for a table, or where no folder holds the set.

    Raises:
        InputError: the canaries were not made for this set.
    """
    if planting.shape["columns"] or dataset not in CATALOGUE:
        return None
    try:
        data = load(dataset, download=False)
    except InputError:
        return None
    shape = planting.shape
    alike = (list(data.input_shape), data.classes, data.task) == (shape["input_shape"], shape["classes"], shape["task"])
    if not alike or int(planting.places.max()) >= len(data.train):
        raise InputError(
            f"dataset={dataset!r}: its records are not those that the canaries were made for. Restore run.json, or "
            "train again."
        )
    return data


def released_model(path: Path, name: str, shape: Mapping[str, Any]) -> nn.Module:
    """A run's model from its safetensors file.

    Args:
        path: the file.
        name: of the network, as the run's record has it.
        shape: of `Planting`: what the network was built for.

    Raises:
        InputError: there is no such file, or it does not fit the network.
    """
    columns = [(kind, int(width)) for kind, width in shape["columns"]]
    network = models.build(name, shape["input_shape"], shape["classes"], columns=columns)
    try:
        network.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: cannot be read as a {name} ({reason}). Give the folder that a run wrote.") from error
    return network.eval()
