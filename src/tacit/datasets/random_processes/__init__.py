"""Images drawn from random processes, to learn features from with no real data at all."""

from tacit.datasets.random_processes.generators import UntrainedGenerators as UntrainedGenerators
from tacit.datasets.random_processes.leaves import DeadLeaves as DeadLeaves
from tacit.datasets.random_processes.mixture import Mixture as Mixture
from tacit.datasets.random_processes.mixture import default_mixture as default_mixture
from tacit.datasets.random_processes.process import RandomProcess as RandomProcess
from tacit.datasets.random_processes.spectra import PowerLawSpectra as PowerLawSpectra
