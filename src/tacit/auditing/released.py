"""An audit of a run: its released model, the canaries that were planted for it, and the records if they are at hand."""

import torch
from torch import nn

from tacit.auditing.attacked import AttackedRecords
from tacit.auditing.attacks.leave_one_out import ATTACKS
from tacit.auditing.attacks.loss_threshold import loss_threshold
from tacit.auditing.attacks.observations import Observations
from tacit.auditing.black_box import audit_canaries, record_confidences
from tacit.auditing.findings import Attack, Finding
from tacit.auditing.lower_bounds.bound import check_confidence
from tacit.auditing.references import Progress, References
from tacit.auditing.roc import Roc
from tacit.auditing.run_folders import ReleasedRun
from tacit.core.randomness import Randomness

WITH_REFERENCES = ("calibrated-loss", "lira-offline-fixed", "lira-offline")
"""Attacks that look at reference models. The first counts: reference models are not trained as a private target is, and
a difference of losses does not hang on their spread, which the likelihood ratio takes for the target's."""


def audit_released(
    run: ReleasedRun,
    references: References,
    *,
    confidence: float = 0.95,
    randomness: Randomness | None = None,
    device: torch.device | None = None,
    progress: Progress | None = None,
) -> Finding:
    """What a released model gives away.

    Args:
        run: the model, its canaries and its records. Without canaries there is no bound on epsilon; where the records
            are not at hand none is attacked.
        references: the models that the auditor trains beside it; none of them leaves the attack that needs none.
        confidence: of bounds and intervals.
        randomness: of the coins of reference models.
        device: where they are trained.
        progress: is told the share of their training that is done.

    Records are attacked by the calibrated loss, which counts, by the offline likelihood ratio, and by a threshold on
    the loss, which counts where there are no reference models. No coin dealt members and non-members, so that the claim
    puts no ceiling on these attacks, and they refute nothing.
    """
    check_confidence(confidence)
    canaries = None
    if run.planting is not None:
        canaries = audit_canaries(run.model, run.planting, delta=run.claim.delta, confidence=confidence)
    seen = None
    if run.records is not None and references.count:
        seen = references.train(
            run.records,
            randomness=randomness or Randomness(),
            device=device or torch.device("cpu"),
            progress=progress,
        )
    return Finding(
        name="released model",
        claim=run.claim,
        confidence=confidence,
        canaries=canaries,
        attacks=[] if run.records is None else attacks_on(run.model, run.records, seen),
        by_coins=False,
        paid_for=True,
    )


def attacks_on(model: nn.Module, records: AttackedRecords, seen: Observations | None) -> list[Attack]:
    """Every attack on the membership of the records, the one that counts first.

    Args:
        model: under attack.
        records: members and non-members.
        seen: what reference models say about the records; without them there is one attack.
    """
    said = record_confidences(model, records.pool.inputs, records.pool.targets)
    scores = {"loss": loss_threshold(said)}
    if seen is not None:
        scores = {name: ATTACKS[name](said[None], seen) for name in WITH_REFERENCES} | scores
    return [Attack(name, Roc.of(values, records.member)) for name, values in scores.items()]
