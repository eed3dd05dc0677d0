"""An audit that sees the released model alone: scores of canaries, and the lower bounds on epsilon that they show."""

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.auditing.arrays import FloatArray
from tacit.auditing.attacks import model_confidences
from tacit.auditing.attacks.observations import BoolArray
from tacit.auditing.canaries import Planting
from tacit.auditing.lower_bounds import GaussianFamily, LowerBound, one_run_bound, one_run_tradeoff_bound
from tacit.auditing.roc import Roc
from tacit.core.errors import InputError
from tacit.training.evaluation import regression_loss

_LEAST_ERROR, _LARGEST_ERROR = 1e-12, 1e6  # targets lie in [-1, 1]


@dataclasses.dataclass(frozen=True, eq=False)
class CanaryEvidence:
    """What was said about canaries, and what it shows.

    Attributes:
        kind, canaries, of_people: of the canaries.
        scores: one for each coin, higher where the canary was rather there; private.
        included: how the coins fell; private.
        bound: on epsilon, whatever the mechanism is. It is what counts.
        gaussian_bound: the same for a mechanism that is Gaussian DP, as compositions of Gaussian noise on all records
            are. It may exceed the true epsilon of a mechanism of another shape, such as DP-SGD with sampling.
    """

    kind: str
    canaries: int
    of_people: bool
    scores: FloatArray
    included: BoolArray
    bound: LowerBound
    gaussian_bound: LowerBound

    @classmethod
    def of(
        cls, planting: Planting, scores: FloatArray, included: BoolArray, *, delta: float, confidence: float
    ) -> "CanaryEvidence":
        """From scores, which were computed without a look at the coins.

        Scores of several models may be given, if each had coins of its own: together they are one mechanism of as many
        coins, of which each moves one model.
        """
        flat, coins = scores.ravel(), included.ravel()
        return cls(
            kind=planting.kind,
            canaries=len(planting),
            of_people=planting.of_people,
            scores=flat,
            included=coins,
            bound=one_run_bound(flat, coins, delta=delta, confidence=confidence),
            gaussian_bound=one_run_tradeoff_bound(
                flat, coins, family=GaussianFamily(), delta=delta, confidence=confidence
            ),
        )

    @property
    def roc(self) -> Roc:
        """How well the scores tell which canaries were there."""
        return Roc.of(self.scores, self.included)

    def facts(self) -> dict[str, Any]:
        """Plain values that are public: the kind, how many, and how many coins were thrown for them."""
        return {"kind": self.kind, "count": self.canaries, "coins": len(self.included)}


def audit_canaries(model: nn.Module, planting: Planting, *, delta: float, confidence: float = 0.95) -> CanaryEvidence:
    """Scores every canary under the model, and bounds epsilon from below.

    Guarantee: where the model came from an (epsilon, delta)-private training for adding and removing a record, on the
    data that `plant` returned, the bound exceeds epsilon with a chance of at most 1 - ``confidence``; see
    `tacit.auditing.lower_bounds.one_run_bound`. The scores are computed without a look at the coins, and how many
    guesses are tried depends on the number of canaries alone.

    Raises:
        InputError: all coins fell alike, so that there is nothing to tell apart.
    """
    if planting.included.all() or not planting.included.any():
        raise InputError(
            f"canaries={len(planting)}: all of them were trained on, or none was, and an audit compares both. Train "
            "with more canaries."
        )
    scores = record_scores(model, planting.inputs, planting.targets)
    return CanaryEvidence.of(planting, scores, planting.included.numpy(), delta=delta, confidence=confidence)


def record_scores(model: nn.Module, inputs: Tensor, targets: Tensor) -> FloatArray:
    """How well the model knows each record: its confidence in a class as log odds, for a regression minus the error.

    A record on which the model's answer is not finite is taken as not known.
    """
    if not targets.dtype.is_floating_point:
        return model_confidences(model, inputs, targets)
    found: FloatArray = -np.nan_to_num(_squared_errors(model, inputs, targets), nan=np.inf, posinf=np.inf)
    return found


def record_confidences(model: nn.Module, inputs: Tensor, targets: Tensor) -> FloatArray:
    """The same as finite log odds, which can be compared with those of other models: see `error_confidences`."""
    if not targets.dtype.is_floating_point:
        return model_confidences(model, inputs, targets)
    return error_confidences(_squared_errors(model, inputs, targets))


def error_confidences(errors: FloatArray) -> FloatArray:
    r"""Squared errors e as log odds :math:`\phi = \log p / (1 - p)` of :math:`p = e^{-e}`.

    So a regression is attacked as a classification is: the loss of these odds, :math:`\log(1 + e^{-\phi})`, is the
    squared error itself. An error that is not finite is taken as a very large one.
    """
    finite = np.nan_to_num(errors, nan=_LARGEST_ERROR, posinf=_LARGEST_ERROR)
    kept = np.clip(finite, _LEAST_ERROR, _LARGEST_ERROR)
    found: FloatArray = -(kept + np.log(-np.expm1(-kept)))
    return found


@torch.no_grad()
def _squared_errors(model: nn.Module, inputs: Tensor, targets: Tensor) -> FloatArray:
    model.eval()
    found: FloatArray = regression_loss(model, inputs, targets).double().numpy()
    return found
