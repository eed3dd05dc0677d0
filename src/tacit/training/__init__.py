"""Training: the private step, loops of one's own, whole runs, and experiments that leave a run folder."""

from tacit.training.averaging import WeightAverage as WeightAverage
from tacit.training.fit import FitResult as FitResult
from tacit.training.fit import TrainingInterrupted as TrainingInterrupted
from tacit.training.fit import fit as fit
from tacit.training.optimizers import NoiseCorrectedAdam as NoiseCorrectedAdam
from tacit.training.private import Execution as Execution
from tacit.training.private import Private as Private
