"""Model and batch in, sum of clipped gradients out."""

from tacit.gradients.clipped_grad import ClippedGrad as ClippedGrad
from tacit.gradients.clipped_grad import ClippedSum as ClippedSum
from tacit.gradients.clipped_grad import clipped_grad as clipped_grad
from tacit.gradients.preflight import preflight as preflight
