"""Training: the private step, loops of one's own, whole runs, and experiments that leave a run folder."""

from tacit.training.averaging import WeightAverage as WeightAverage
from tacit.training.execution import Execution as Execution
from tacit.training.experiment import Experiment as Experiment
from tacit.training.fitting import FitResult as FitResult
from tacit.training.fitting import TrainingInterrupted as TrainingInterrupted
from tacit.training.fitting import fit as fit
from tacit.training.optimizers import NoiseCorrectedAdam as NoiseCorrectedAdam
from tacit.training.preparation import PrincipalComponents as PrincipalComponents
from tacit.training.preparation import prepare as prepare
from tacit.training.preparation import prepared as prepared
from tacit.training.private import Private as Private
from tacit.training.resume import Checkpoint as Checkpoint
from tacit.training.run_folder import RunFolder as RunFolder
from tacit.training.settings import Settings as Settings
from tacit.training.settings import default_settings as default_settings
from tacit.training.views import Augmented as Augmented
from tacit.training.views import over_views as over_views
