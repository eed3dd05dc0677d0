"""Every model in its turn as the target, all others as its shadow models."""

from collections.abc import Callable

import numpy as np

from tacit.auditing.arrays import FloatArray
from tacit.auditing.attacks.calibrated_loss import calibrated_loss
from tacit.auditing.attacks.lira import lira
from tacit.auditing.attacks.loss_threshold import loss_threshold
from tacit.auditing.attacks.observations import Observations
from tacit.auditing.roc import Roc
from tacit.core.errors import InputError

Attack = Callable[[FloatArray, Observations], FloatArray]
"""From a target's confidences ``[queries, records]`` and its shadow models to scores ``[records]``."""

ATTACKS: dict[str, Attack] = {
    "loss": lambda target, _shadows: loss_threshold(target).mean(axis=0),
    "calibrated-loss": calibrated_loss,
    "lira-online-fixed": lambda target, shadows: lira(target, shadows, variance="fixed"),
    "lira-online": lambda target, shadows: lira(target, shadows, variance="per-example"),
    "lira-offline-fixed": lambda target, shadows: lira(target, shadows, online=False, variance="fixed"),
    "lira-offline": lambda target, shadows: lira(target, shadows, online=False, variance="per-example"),
}
"""All attacks by name, the weakest knowledge first."""


def attack_each(targets: Observations, attack: Attack, *, shadows: Observations | None = None) -> Roc:
    """The curve over all targets and records together.

    N models give N times the scores of one target, which low false positive rates need. Each record's scores under
    different targets are compared with one threshold.

    Args:
        targets: the models under attack, and who was a member of each.
        attack: one of `ATTACKS`, or another.
        shadows: the attacker's models, on the same records, with memberships that were drawn independently of the
            targets': an attack that knew one from the other would know the answer. Without them all targets but the
            one under attack.
    """
    if shadows is None and targets.models < 2:
        raise InputError(f"targets={targets.models}: one model has no others as its shadows. Give shadows.")
    scores = [
        attack(targets.confidence[number], targets.without(number) if shadows is None else shadows)
        for number in range(targets.models)
    ]
    return Roc.of(np.stack(scores), targets.member)
