"""Several random processes as one."""

import dataclasses
import itertools
import math

import torch
from torch import Generator, Tensor

from tacit.core.errors import InputError
from tacit.core.validation import check_count, check_positive
from tacit.datasets.random_processes.generators import UntrainedGenerators
from tacit.datasets.random_processes.leaves import DeadLeaves
from tacit.datasets.random_processes.process import RandomProcess
from tacit.datasets.random_processes.spectra import PowerLawSpectra


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Each process's share of every batch, in random order.

    Of n images, process k gives as many as lie between the rounded ends of its part of the interval [0, n]: the shares
    are those of the weights to within one image, the same in every batch of one size. Fixed numbers keep the shapes
    of all work on a device the same from call to call.

    Args:
        processes: of images of one size.
        weights: one above zero for each process, of any sum.
    """

    processes: tuple[RandomProcess, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.processes or len(self.processes) != len(self.weights):
            raise InputError(
                f"weights={self.weights!r}: must be one for each of the {len(self.processes)} processes, one or more."
            )
        for weight in self.weights:
            check_positive("weights", weight)
        sizes = {process.size for process in self.processes}
        if len(sizes) > 1:
            raise InputError(f"processes={sorted(sizes)} pixels: must all give images of one size.")

    @property
    def size(self) -> int:
        """Height and width of the images."""
        return self.processes[0].size

    def sample(self, count: int, generator: Generator) -> Tensor:
        """Images (count, 3, size, size)."""
        check_count("count", count, minimum=0)
        total = math.fsum(self.weights)
        ends = [round(count * end / total) for end in itertools.accumulate(self.weights)]
        ends[-1] = count
        counts = [end - start for start, end in itertools.pairwise([0, *ends])]
        images = [process.sample(part, generator) for process, part in zip(self.processes, counts, strict=True)]
        order = torch.randperm(count, generator=generator, device=generator.device)
        return torch.cat(images)[order]


def default_mixture(size: int = 32) -> Mixture:
    """What `tacit.training.pretraining` learns from unless told otherwise.

    Half untrained generators, whose images gave Tang et al. (DP-RandP, 2023) the best features, a third dead leaves,
    the rest spectra.
    """
    processes = (UntrainedGenerators(size=size), DeadLeaves(size=size), PowerLawSpectra(size=size))
    return Mixture(processes, (3.0, 2.0, 1.0))
