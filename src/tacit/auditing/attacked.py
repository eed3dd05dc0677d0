"""Whose membership in a run is attacked: records that it was trained on, and records that it never saw."""

import dataclasses

import numpy as np
import torch
from torch import Tensor

from tacit.auditing.attacks.observations import BoolArray
from tacit.auditing.canaries import Planting
from tacit.core.errors import InputError
from tacit.datasets import DataSet, Split
from tacit.datasets.split import ColumnKind


@dataclasses.dataclass(frozen=True, eq=False)
class AttackedRecords:
    """Members and non-members of a run, as its model takes them. Private.

    Attributes:
        pool: all of them.
        member: ``[records]``: whether each was trained on. Their splits were dealt by places, not by coins, so that a
            claim puts no ceiling on how well they are told apart.
        classes, columns: what a network must know to be trained on them, as in `DataSet`.
    """

    pool: Split
    member: BoolArray
    classes: int
    columns: tuple[tuple[ColumnKind, int], ...] = ()

    @classmethod
    def of_training(cls, data: DataSet, planting: Planting | None = None) -> "AttackedRecords":
        """Of a run that was trained on the training split.

        Non-members are the test split, and the records whose places were given to canaries. Somebody's mislabelled
        record that was there is neither: its input was trained on, its label was not.
        """
        there = torch.ones(len(data.train), dtype=torch.bool)
        left_out = torch.zeros_like(there)
        if planting is not None:
            there[planting.places] = False
            left_out[planting.places[~planting.included] if planting.of_people else planting.places] = True
        train = data.train
        return cls._of(
            data,
            Split(train.inputs[there], train.targets[there]),
            Split(
                torch.cat([data.test.inputs, train.inputs[left_out]]),
                torch.cat([data.test.targets, train.targets[left_out]]),
            ),
        )

    @classmethod
    def of_pate(cls, data: DataSet, *, public: str, public_inputs: int) -> "AttackedRecords":
        """Of a run of PATE, whose teachers saw the training split.

        The ``public_inputs`` ``first`` or ``last`` ones of the test split are neither: the student learned from them.

        Raises:
            InputError: there are no others.
        """
        test = data.test
        if not 0 < public_inputs < len(test) or public not in ("first", "last"):
            raise InputError(
                f"public={public!r}, public_inputs={public_inputs}: are no part of the {len(test)} test examples of "
                f"{data.name!r}. Restore run.json, or run tacit pate again."
            )
        rest = slice(public_inputs, None) if public == "first" else slice(None, len(test) - public_inputs)
        return cls._of(data, data.train, Split(*test[rest]))

    @classmethod
    def _of(cls, data: DataSet, members: Split, non_members: Split) -> "AttackedRecords":
        def joined(name: str) -> Tensor:
            return torch.cat([getattr(members, name), getattr(non_members, name)])

        member = np.arange(len(members) + len(non_members)) < len(members)
        return cls(Split(joined("inputs"), joined("targets")), member, data.classes, data.columns)

    @property
    def is_regression(self) -> bool:
        """Whether targets are numbers."""
        return self.pool.targets.is_floating_point()
