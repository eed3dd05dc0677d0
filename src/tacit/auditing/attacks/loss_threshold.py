"""The loss-threshold attack: records with a small loss are called members.

It needs the model alone. Yeom, Giacomelli, Fredrikson and Jha, Privacy Risk in Machine Learning: Analyzing the
Connection to Overfitting, 2018.
"""

import numpy.typing as npt

from tacit.auditing.arrays import FloatArray
from tacit.auditing.attacks.signals import losses


def loss_threshold(target: npt.ArrayLike) -> FloatArray:
    """Scores from the target's confidences in the records (see `signals`): minus the loss. Higher says "member"."""
    return -losses(target)
