r"""Reference models: what an auditor trains himself, to see how hard each record is for models that never saw it.

Every record that is attacked, member or not, joins every reference model by a fair coin of its own. So members and
non-members are treated alike, and what is found tells about the released model. Reference models are trained plainly:
no budget pays for them, and none is kept. They need not be of the released model's distribution: a poor reference makes
the attack weaker, never a guarantee wrong.
"""

import copy
import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from tacit import models
from tacit.auditing.attacked import AttackedRecords
from tacit.auditing.attacks.observations import BoolArray, Observations
from tacit.auditing.black_box import error_confidences
from tacit.auditing.shadows import fair_memberships, observe, train_plain
from tacit.core.errors import InputError
from tacit.core.randomness import Randomness
from tacit.core.validation import check_count
from tacit.datasets import Split
from tacit.training.ensemble import Fitting, seeded

Progress = Callable[[float], None]
"""Told the share that is done, from 0 to 1."""

LEAST_SQUARES = "least-squares"
_USUAL, _FEWEST = 16, 4
_BATCH, _EPOCHS, _MOST_STEPS = 64, 30, 600
_RIDGE = 1e-3  # of least squares: the inputs of a category add up to the constant
_DENSE = ("linear", "mlp", "table-mlp")


@dataclasses.dataclass(frozen=True)
class References:
    """How many reference models an auditor trains, and of which kind.

    Attributes:
        count: 0 for none, else at least 4, since attacks take a spread from them.
        network: a name of `tacit.models.MODELS`; or least squares on the inputs, for a regression.
    """

    count: int
    network: str

    def __post_init__(self) -> None:
        check_count("shadows", self.count, minimum=0)
        if 0 < self.count < _FEWEST:
            raise InputError(
                f"shadows={self.count}: must be at least {_FEWEST}, for attacks take a spread from them, or 0 for none."
            )

    @classmethod
    def suiting(
        cls, records: AttackedRecords | None, released: str, *, count: int | None = None, network: str | None = None
    ) -> "References":
        """What was asked for, and in the place of what was not, what two cores train in about a minute.

        Args:
            records: that are attacked; None where they are not at hand, and there is nothing to compare.
            released: the network of the model under attack. Where it has convolutions a perceptron stands in for it.
            count, network: what was asked for.

        Raises:
            InputError: what was asked for cannot be had.
        """
        if records is None:
            if count:
                raise InputError(f"shadows={count}: the records of the run are not at hand. Leave it out.")
            return cls(0, released)
        if records.is_regression:
            if network is not None:
                raise InputError(f"model={network!r}: a regression is compared with least squares. Leave it out.")
            return cls(_USUAL if count is None else count, LEAST_SQUARES)
        chosen = network or (released if released in _DENSE else "mlp")
        with torch.device("meta"):
            _built(chosen, records)  # refuses a network that does not take such inputs
        return cls(_USUAL if count is None else count, chosen)

    def train(
        self,
        records: AttackedRecords,
        *,
        randomness: Randomness,
        device: torch.device,
        progress: Progress | None = None,
    ) -> Observations:
        """What the models say about the records, each trained on a random half of them.

        Args:
            records: that are attacked.
            randomness: of the coins.
            device: where to train.
            progress: is told the share that is done.
        """
        member = fair_memberships(self.count, len(records.pool), randomness, "references")
        pool = Split(records.pool.inputs.to(device), records.pool.targets.to(device))
        if records.is_regression:
            return _least_squares(pool, member)
        first = seeded(lambda: _built(self.network, records), seed=0)
        steps = min(_MOST_STEPS, max(1, _EPOCHS * len(pool) // (2 * _BATCH)))
        how = Fitting(steps=steps, batch_size=_BATCH)
        answers = train_plain(lambda: copy.deepcopy(first), pool, member, how, progress=progress)
        return observe(answers, pool, member)


def _built(network: str, records: AttackedRecords) -> nn.Module:
    return models.build(network, records.pool.inputs.shape[1:], records.classes, columns=records.columns)


def _least_squares(pool: Split, member: BoolArray) -> Observations:
    """Of each half, with an intercept; in float64."""
    inputs, targets = pool.inputs.flatten(1).double(), pool.targets.double()
    design = torch.cat([torch.ones(len(inputs), 1, dtype=torch.float64, device=inputs.device), inputs], dim=1)
    errors = [(design @ _solution(design, targets, row) - targets).square().cpu().numpy() for row in member]
    return Observations(error_confidences(np.stack(errors)), member)


def _solution(design: Tensor, targets: Tensor, row: BoolArray) -> Tensor:
    chosen = torch.from_numpy(row).to(design.device)
    part = design[chosen]
    gram = part.T @ part + _RIDGE * torch.eye(design.shape[1], dtype=design.dtype, device=design.device)
    found: Tensor = torch.linalg.solve(gram, part.T @ targets[chosen])
    return found
