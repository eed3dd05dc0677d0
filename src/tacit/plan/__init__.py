"""One frozen object that couples sampler, clipping, noise and event, so that they cannot disagree."""

from tacit.plan.defaults import DEFAULT_EPSILON as DEFAULT_EPSILON
from tacit.plan.defaults import default_delta as default_delta
from tacit.plan.dpsgd import DPSGD as DPSGD
from tacit.plan.dpsgd import DeltaWarning as DeltaWarning
from tacit.plan.preparation import Preparation as Preparation
