"""What an audit found out about one model, as plain values for JSON and for a page."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.auditing.arrays import FloatArray
from tacit.auditing.black_box import CanaryEvidence
from tacit.auditing.ceilings import Ceiling
from tacit.auditing.roc import FALSE_POSITIVE_RATES, Roc
from tacit.core.errors import InputError

_RATES = FALSE_POSITIVE_RATES
_CURVE = np.geomspace(1e-4, 1.0, 121)
_BINS = 30
_TAILS = (0.5, 99.5)  # percentiles: scores beyond are shown in the outermost bins


@dataclasses.dataclass(frozen=True)
class Claim:
    """The guarantee that is tested; without one epsilon is infinite."""

    epsilon: float
    delta: float

    @classmethod
    def of_statement(cls, epsilon: float | None, delta: float | None) -> "Claim":
        """From a run's record, where an epsilon of None says that nothing is guaranteed."""
        if delta is None:
            raise InputError("delta: the run's statement has none, so that there is no claim to test. Train again.")
        return cls(math.inf if epsilon is None else epsilon, delta)

    @property
    def ceiling(self) -> Ceiling:
        """What it allows any attack."""
        return Ceiling.of_claim(self.epsilon, self.delta)


@dataclasses.dataclass(frozen=True, eq=False)
class Attack:
    """An attack on the membership of records.

    Attributes:
        name: what it does, in words.
        roc: scores of members and non-members; private, since people's records were scored.
    """

    name: str
    roc: Roc


@dataclasses.dataclass(frozen=True, eq=False)
class Finding:
    """One model under attack.

    Attributes:
        name: which model.
        claim: its guarantee.
        confidence: of each interval, and of the verdict on the claim. Bounds say their own, which is larger where the
            claim is tested more than once.
        canaries: what it says about its canaries; None for a run without. Nothing is tested then: the lower bound is 0,
            which holds always, and is the largest that could have been shown.
        attacks: on the membership of records; the first counts, and was chosen before anything was seen. None where
            the records are not at hand.
        by_coins: whether a fair coin of its own decided about each record that is attacked. A ceiling holds for such
            members alone: a fixed split may differ from the rest whether it was trained on or not.
        paid_for: whether the model was released, or its training charged to an account, so that what is computed from
            the model and from nobody's record costs nothing more.
        test_accuracy: on records kept apart.
    """

    name: str
    claim: Claim
    confidence: float
    canaries: CanaryEvidence | None
    attacks: Sequence[Attack]
    by_coins: bool
    paid_for: bool
    test_accuracy: float | None = None

    @property
    def refuted(self) -> bool:
        """Whether the lower bound lies above the claim. For a true claim the chance is at most 1 - confidence."""
        return self.canaries is not None and self.canaries.bound.epsilon > self.claim.epsilon

    @property
    def private(self) -> tuple[str, ...]:
        """Which keys of `to_dict` no budget paid for.

        A lower bound from canaries that belong to nobody is post-processing of the model. All that was computed from
        people's records, and all that was computed from a model that nobody paid for, is not.
        """
        of_records = ("auc", "tpr_at_fpr", "attacks")
        free = self.paid_for and not (self.canaries is not None and self.canaries.of_people)
        return of_records if free else ("epsilon_lower", "refuted", "bounds", "canary_auc", *of_records)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values for the owner of the data; ``private`` names those that are not to be published."""
        first = self.attacks[0].roc if self.attacks else None
        seen = self.canaries
        bounds = [] if seen is None else [seen.bound, seen.gaussian_bound]
        return {
            "epsilon_lower": bounds[0].epsilon if bounds else 0.0,
            "confidence": self.confidence,
            "epsilon_claimed": self.claim.epsilon if math.isfinite(self.claim.epsilon) else None,
            "delta": self.claim.delta,
            "refuted": self.refuted,
            "epsilon_largest": bounds[0].largest if bounds else 0.0,
            "bounds": [bound.to_dict() for bound in bounds],
            "canaries": None if seen is None else seen.facts(),
            "canary_auc": None if seen is None else seen.roc.auc(confidence=self.confidence).to_dict(),
            "auc": None if first is None else first.auc(confidence=self.confidence).value,
            "tpr_at_fpr": None if first is None else {f"{fpr:g}": first.tpr_at(fpr).tpr.value for fpr in _RATES},
            "attacks": [self._attack(attack) for attack in self.attacks],
            "by_coins": self.by_coins,
            "test_accuracy": self.test_accuracy,
            "private": list(self.private),
        }

    def _attack(self, attack: Attack) -> dict[str, Any]:
        points = [attack.roc.tpr_at(fpr, confidence=self.confidence) for fpr in _RATES]
        ceilings = [{"ceiling": most} if self.by_coins else {} for most in self.claim.ceiling.at(_RATES).tolist()]
        return {
            "name": attack.name,
            "auc": attack.roc.auc(confidence=self.confidence).to_dict(),
            "members": len(attack.roc.members),
            "non_members": len(attack.roc.non_members),
            "tpr_at_fpr": [{**point.to_dict(), **most} for point, most in zip(points, ceilings, strict=True)],
        }

    def drawn(self) -> dict[str, Any]:
        """What the figures of a page need: curves and counts, for the owner of the data."""
        return {
            "name": self.name,
            **self.to_dict(),
            "fpr": _CURVE.tolist(),
            "ceiling": self.claim.ceiling.at(_CURVE).tolist(),
            "canary_scores": None if self.canaries is None else _shown("canaries", self.canaries.roc),
            "attack_scores": [_shown(attack.name, attack.roc) for attack in self.attacks],
        }


def _shown(name: str, roc: Roc) -> dict[str, Any]:
    return {"name": name, "tpr": _curve(roc), "histogram": _histogram(roc)}


def _curve(roc: Roc) -> list[float]:
    """True positive rates from the least false positive rate that the non-members can tell; NaN below."""
    rates: list[float] = np.where(len(roc.non_members) * _CURVE < 1, np.nan, roc.tprs(_CURVE)).tolist()
    return rates


def _histogram(roc: Roc) -> dict[str, list[float]]:
    """Shares of members and of non-members in bins of equal width."""
    both = np.concatenate([roc.members, roc.non_members])
    both = both[np.isfinite(both)]
    low, high = np.percentile(both, _TAILS) if both.size else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    return {
        "edges": edges.tolist(),
        "members": _shares(roc.members, edges),
        "non_members": _shares(roc.non_members, edges),
    }


def _shares(scores: FloatArray, edges: FloatArray) -> list[float]:
    counts, _ = np.histogram(np.clip(scores, edges[0], edges[-1]), edges)
    shares: list[float] = (counts / len(scores)).tolist()
    return shares
