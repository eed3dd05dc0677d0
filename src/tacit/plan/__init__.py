"""One frozen object that couples sampler, clipping, noise and event, so that they cannot disagree."""

from tacit.plan.dpsgd import DPSGD as DPSGD
from tacit.plan.dpsgd import DeltaWarning as DeltaWarning
from tacit.plan.preparation import Preparation as Preparation
