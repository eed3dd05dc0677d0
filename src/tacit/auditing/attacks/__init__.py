"""Membership inference: was this record among those that the model was trained on?

Every attack turns confidences (`signals`) into scores, of which a higher one says "member"; `tacit.auditing.roc` says
how well they tell. Attacks that also look at models trained on other records take these from `tacit.auditing.shadows`.
"""

from tacit.auditing.attacks.loss_threshold import loss_threshold as loss_threshold
from tacit.auditing.attacks.signals import confidences as confidences
from tacit.auditing.attacks.signals import losses as losses
from tacit.auditing.attacks.signals import model_confidences as model_confidences
