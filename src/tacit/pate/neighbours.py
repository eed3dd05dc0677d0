r"""Private-kNN: the teachers of a question are its nearest private records, within a random sample of them.

No teacher is trained. For every question a Poisson sample of the private records is drawn anew, the k nearest records
of the sample vote with their labels, and noise hides each of them. One record more takes the place of another among
the k, so counts move by :math:`\sqrt 2` in L2 norm and the largest count by 1, and sampling makes that cheaper still.

That rests on an order of the others which one record never changes. So features lie on a grid of integers, where
products of vectors are exact in whatever order a processor adds them, and equally near records stay in their order.

Reference: Zhu, Yu, Chandraker, Wang, Private-kNN: Practical Differential Privacy for Computer Vision, 2020.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from dp_accounting import dp_event
from torch import Tensor

from tacit.accounting.pate import knn_screening_event, knn_vote_event
from tacit.core.errors import InputError
from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.core.validation import check_count, check_open_unit
from tacit.datasets import Split
from tacit.pate.aggregation import ConfidentGNMax, GNMax
from tacit.pate.votes import Votes

_LENGTH = 2048.0  # of a vector: its numbers are exact in TF32, and its products, below 2^24, in float32
_BLOCK = 256  # questions at once


@dataclasses.dataclass(frozen=True)
class PrivateKNN:
    """Answers from the nearest records of a sample, to all questions or where enough of them agree; an `Aggregator`.

    Attributes:
        sampling_rate: with which every record is in the sample of a question's test, and of its answer.
        voters: k, how many of the nearest in the sample vote; fewer where the sample is smaller.
        noise: on the counts, and with `ConfidentGNMax` the test of the largest count before an answer.
    """

    sampling_rate: float
    voters: int
    noise: GNMax | ConfidentGNMax

    def __post_init__(self) -> None:
        check_open_unit("sampling_rate", self.sampling_rate, remedy="Typical rates lie between 0.02 and 0.3.")
        check_count("voters", self.voters)

    @property
    def name(self) -> str:
        """The name on the command line."""
        return "private-knn"

    def passes(self, votes: Votes, stream: np.random.Generator) -> bool:
        """Whether the largest count, with noise, reaches the threshold, if there is one."""
        return self.noise.passes(votes, stream)

    def answer(self, votes: Votes, stream: np.random.Generator) -> int:
        """The class with the most votes after noise; the votes must be of a sample that the test did not see."""
        return self.noise.answer(votes, stream)

    def question_event(self, neighbours: Neighbours) -> dp_event.DpEvent:
        """One sampled Gaussian release of the largest count, where it is tested; it holds for every relation."""
        del neighbours
        if isinstance(self.noise, GNMax):
            return dp_event.NoOpDpEvent()
        return knn_screening_event(self.sampling_rate, self.noise.sigma_threshold)

    def answer_event(self, neighbours: Neighbours) -> dp_event.DpEvent:
        """One sampled Gaussian release of all counts; it holds for every relation."""
        del neighbours
        return knn_vote_event(self.sampling_rate, self.noise.sigma)

    def votes(
        self,
        records: Split,
        questions: Tensor,
        rows: Sequence[int],
        classes: int,
        randomness: Randomness,
        *,
        purpose: str,
    ) -> Votes:
        """Votes on the questions in ``rows``, ``[questions, classes]``, zero in all others; private.

        Args:
            records: features ``[records, numbers]`` and labels of the private records. The feature map must be public.
                A record whose features are not finite is at a right angle to every question.
            questions: features of the public inputs, ``[questions, numbers]``.
            rows: which of the questions will be asked.
            classes: how many there are.
            randomness: of the samples.
            purpose: names them: a question's test and its answer need a sample each.
        """
        _check_rows(records.inputs, questions)
        known, labels = on_grid(records.inputs), records.targets
        found = np.zeros((len(questions), classes), dtype=np.int64)
        for start in range(0, len(rows), _BLOCK):
            block = list(rows[start : start + _BLOCK])
            order = _order(on_grid(questions[block]), known)
            for row, nearness in zip(block, order, strict=True):
                stream = randomness.stream("neighbours", purpose, row)
                voters = self._nearest(nearness, stream)
                found[row] = np.bincount(labels[voters].cpu().numpy(), minlength=classes)
        return found

    def _nearest(self, nearness: Tensor, stream: np.random.Generator) -> Tensor:
        """The k nearest of a Poisson sample."""
        chosen = np.flatnonzero(stream.random(len(nearness)) < self.sampling_rate)
        sample = torch.from_numpy(chosen).to(nearness.device)
        return sample[nearness[sample].topk(min(self.voters, len(sample))).indices]


def on_grid(features: Tensor) -> Tensor:
    """Rows as integers in float32: each scaled to one length, so that angles decide who is near, then rounded.

    Every row is mapped by itself. One that is zero or not finite becomes zero.
    """
    rows = features.double()
    rows = torch.where(rows.isfinite().all(1, keepdim=True), rows, 0.0)
    # By the largest number first: a square of it could be infinite or vanish.
    rows = rows / rows.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    lengths: Tensor = rows.norm(dim=1, keepdim=True)
    return (_LENGTH * rows / lengths.clamp_min(1.0)).round().float()


def _order(questions: Tensor, records: Tensor) -> Tensor:
    """``[questions, records]``: larger is nearer, no two alike, the earlier of equally near records first."""
    places = torch.arange(len(records), device=records.device, dtype=torch.float64)
    # At most 2^24 products apart by 2^24 places: integers below 2^48, exact in float64.
    return (questions @ records.t()).double() * 2.0**24 - places


def _check_rows(records: Tensor, questions: Tensor) -> None:
    if records.dim() != 2 or questions.dim() != 2 or records.shape[1] != questions.shape[1]:
        raise InputError(
            f"records={tuple(records.shape)}, questions={tuple(questions.shape)}: must be rows of as many numbers. "
            "Flatten images, or take features of both."
        )
