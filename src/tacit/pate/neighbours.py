r"""Private-kNN: the teachers of a question are its nearest private records, within a random sample of them.

No teacher is trained. For every question a Poisson sample of the private records is drawn anew, the k nearest records
of the sample vote with their labels, and noise hides each of them. One record more takes the place of another among
the k, so counts move by :math:`\sqrt 2` in L2 norm and the largest count by 1, and sampling makes that cheaper still.

Reference: Zhu, Yu, Chandraker, Wang, Private-kNN: Practical Differential Privacy for Computer Vision, 2020.
"""

import dataclasses

import numpy as np
import numpy.typing as npt
from torch import Tensor

from tacit.core.errors import InputError
from tacit.core.randomness import Randomness
from tacit.core.validation import check_count, check_open_unit
from tacit.datasets import Split
from tacit.pate.votes import Votes

_BLOCK = 256  # questions at once


@dataclasses.dataclass(frozen=True)
class Neighbourhood:
    """Who votes on a question.

    Attributes:
        sampling_rate: with which every record is in the sample of a question.
        voters: k, how many of the nearest in the sample vote; fewer where the sample is smaller.
    """

    sampling_rate: float
    voters: int

    def __post_init__(self) -> None:
        check_open_unit("sampling_rate", self.sampling_rate, remedy="Typical rates lie between 0.05 and 0.5.")
        check_count("voters", self.voters)


def neighbour_votes(
    records: Split, questions: Tensor, classes: int, how: Neighbourhood, randomness: Randomness, *, purpose: str
) -> Votes:
    """The votes on every question, ``[questions, classes]``; private until noise was added.

    Args:
        records: features ``[records, numbers]`` and labels of the private records. The feature map must not have
            learned from them, but in private.
        questions: features of the public inputs.
        classes: how many there are.
        how: sampling rate and number of voters.
        randomness: of the samples; a question's test and its answer need a sample each, under different purposes.
        purpose: names the samples' streams, such as ``"answer"``.
    """
    if records.inputs.dim() != 2 or questions.dim() != 2 or records.inputs.shape[1] != questions.shape[1]:
        raise InputError(
            f"records={tuple(records.inputs.shape)}, questions={tuple(questions.shape)}: must be rows of as many "
            "numbers. Flatten images, or take features of both."
        )
    votes = np.zeros((len(questions), classes), dtype=np.int64)
    labels = records.targets.cpu().numpy()
    lengths = records.inputs.square().sum(1)
    for start in range(0, len(questions), _BLOCK):
        block = questions[start : start + _BLOCK]
        order = (lengths - 2 * block @ records.inputs.t()).argsort(1).cpu().numpy()
        for row, nearest in enumerate(order, start):
            stream = randomness.stream("neighbours", purpose, row)
            votes[row] = np.bincount(labels[_sampled(nearest, how, stream)], minlength=classes)
    return votes


def _sampled(nearest: npt.NDArray[np.int64], how: Neighbourhood, stream: np.random.Generator) -> npt.NDArray[np.int64]:
    """The first k of a Poisson sample of records in this order."""
    return nearest[stream.random(len(nearest)) < how.sampling_rate][: how.voters]
