"""Membership inference: was this record among those that the model was trained on?

Every attack turns confidences (`signals`) into scores, of which a higher one says "member"; `tacit.auditing.roc` says
how well they tell. Attacks that also look at models trained on other records take these from `tacit.auditing.shadows`.
"""

from tacit.auditing.attacks.calibrated_loss import calibrated_loss as calibrated_loss
from tacit.auditing.attacks.leave_one_out import ATTACKS as ATTACKS
from tacit.auditing.attacks.leave_one_out import Attack as Attack
from tacit.auditing.attacks.leave_one_out import attack_each as attack_each
from tacit.auditing.attacks.lira import lira as lira
from tacit.auditing.attacks.loss_threshold import loss_threshold as loss_threshold
from tacit.auditing.attacks.observations import Observations as Observations
from tacit.auditing.attacks.signals import confidences as confidences
from tacit.auditing.attacks.signals import losses as losses
from tacit.auditing.attacks.signals import model_confidences as model_confidences
