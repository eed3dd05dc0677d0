"""The calibrated loss: how much smaller the target's loss is than that of models that never saw the record.

A record that is easy for everyone then no longer looks like a member. Watson, Guo, Cormode and Sablayrolles, On the
Importance of Difficulty Calibration in Membership Inference Attacks, 2022.
"""

import numpy as np
import numpy.typing as npt

from tacit.auditing.arrays import FloatArray
from tacit.auditing.attacks.observations import Observations
from tacit.auditing.attacks.signals import losses


def calibrated_loss(target: npt.ArrayLike, shadows: Observations) -> FloatArray:
    """Scores ``[records]`` from the target's confidences, ``[records]`` or ``[queries, records]``.

    A record that every shadow model was trained on is compared with all of them.
    """
    outside = ~shadows.member
    outside[:, ~outside.any(axis=0)] = True
    hard = losses(shadows.confidence).mean(axis=1)  # [models, records]
    expected = (hard * outside).sum(axis=0) / outside.sum(axis=0)
    return np.asarray(expected - np.atleast_2d(losses(target)).mean(axis=0))
