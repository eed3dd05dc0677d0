"""Who votes on the questions: networks, linear models, scikit-learn estimators, or the nearest records."""

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from tacit.core.errors import InputError
from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.core.validation import check_count
from tacit.datasets import Split
from tacit.pate.estimators import EstimatorTeachers
from tacit.pate.linear_teachers import LinearFitting, LinearTeachers
from tacit.pate.neighbours import PrivateKNN
from tacit.pate.partition import Indices, partition, partition_by_identity
from tacit.pate.teachers import Teachers, TeacherTraining
from tacit.pate.votes import Votes, count_votes
from tacit.training.ensemble import Progress

_PLACES = (Neighbours.REPLACE_ONE, Neighbours.ZERO_OUT)


@dataclasses.dataclass(frozen=True)
class Classroom:
    """What voters may learn from, and what they are asked.

    Attributes:
        records: the private inputs and labels.
        features: of the private inputs, by a map that public inputs decide.
        questions, question_features: the public inputs, and their features.
        classes: how many there are.
    """

    records: Split
    features: Tensor
    questions: Tensor
    question_features: Tensor
    classes: int


@dataclasses.dataclass(frozen=True)
class Poll:
    """The votes on all public inputs; private.

    Attributes:
        unsafe_votes: ``[questions, classes]``, for answers.
        unsafe_tested: the same for tests of how many agree; with trained teachers the same votes.
        voters: how many vote on a question at most, which is public.
        unsafe_excluded: teachers that never vote, since they could not be trained on what their parts hold.
    """

    unsafe_votes: Votes
    unsafe_tested: Votes
    voters: int
    unsafe_excluded: tuple[int, ...] = ()


class Voters(Protocol):
    """Votes of which one person moves one, from a class to another."""

    @property
    def relations(self) -> tuple[Neighbours, ...]:
        """The relations for which that is true; the first one is the default."""
        ...

    def poll(
        self, room: Classroom, rows: Sequence[int], randomness: Randomness, *, seed: int, progress: Progress
    ) -> Poll:
        """Lets everybody vote, on the rows that will be asked at least."""
        ...


@dataclasses.dataclass(frozen=True)
class Shares:
    """How the private records are dealt out.

    Attributes:
        teachers: how many parts.
        owners: of each record, such as user names: then all that one has goes to one teacher, and people may also join
            or leave. None deals places out, for a public number of records.
    """

    teachers: int
    owners: Sequence[Hashable] | None = None

    def __post_init__(self) -> None:
        check_count("teachers", self.teachers)

    @property
    def relations(self) -> tuple[Neighbours, ...]:
        """The relations under which one person is in one part."""
        return _PLACES if self.owners is None else (Neighbours.ADD_REMOVE, *_PLACES)

    def parts(self, records: int, seed: int) -> tuple[Indices, ...]:
        """Row numbers of each teacher."""
        if self.owners is None:
            return partition(records, self.teachers, seed=seed)
        if len(self.owners) != records:
            raise InputError(f"owners={len(self.owners)}: must be one for each of the {records} records.")
        return partition_by_identity([repr(owner) for owner in self.owners], self.teachers, seed=seed)


class Ensemble(Protocol):
    """Trained teachers."""

    @property
    def excluded(self) -> tuple[int, ...]:
        """Those that never vote, which was decided before the first question."""
        ...

    def predictions(self, inputs: Tensor) -> npt.NDArray[np.int64]:
        """``[teachers, questions]``: the vote of every other teacher."""
        ...


Teach = Callable[[Classroom, Sequence[Indices], int, Progress], tuple[Ensemble, Tensor]]
"""From what there is to learn, the parts, a seed and progress: the teachers, and the questions as they see them."""


@dataclasses.dataclass(frozen=True)
class TeacherVoters:
    """One teacher for each share of the records."""

    shares: Shares
    teach: Teach

    @property
    def relations(self) -> tuple[Neighbours, ...]:
        """As the records are dealt out."""
        return self.shares.relations

    def poll(
        self, room: Classroom, rows: Sequence[int], randomness: Randomness, *, seed: int, progress: Progress
    ) -> Poll:
        """Every teacher on every question."""
        del rows, randomness
        teachers, questions = self.teach(room, self.shares.parts(len(room.records), seed), seed, progress)
        votes = count_votes(teachers.predictions(questions), room.classes)
        return Poll(votes, votes, self.shares.teachers, teachers.excluded)


def linear_voters(shares: Shares, fitting: LinearFitting | None = None) -> TeacherVoters:
    """Linear models on the features."""

    def teach(room: Classroom, parts: Sequence[Indices], _: int, progress: Progress) -> tuple[Ensemble, Tensor]:
        records = Split(room.features, room.records.targets)
        return LinearTeachers.train(records, room.classes, parts, fitting, progress), room.question_features

    return TeacherVoters(shares, teach)


def network_voters(
    shares: Shares, build: Callable[[], nn.Module], training: TeacherTraining | None = None
) -> TeacherVoters:
    """Networks on the inputs themselves."""

    def teach(room: Classroom, parts: Sequence[Indices], _: int, progress: Progress) -> tuple[Ensemble, Tensor]:
        return Teachers.train(build, room.records, parts, training or TeacherTraining(), progress), room.questions

    return TeacherVoters(shares, teach)


def estimator_voters(shares: Shares, estimator: Any) -> TeacherVoters:
    """Clones of a scikit-learn classifier on the features."""

    def teach(room: Classroom, parts: Sequence[Indices], seed: int, progress: Progress) -> tuple[Ensemble, Tensor]:
        records, public = Split(room.features, room.records.targets), room.question_features
        return EstimatorTeachers.train(estimator, records, parts, public=public, seed=seed, progress=progress), public

    return TeacherVoters(shares, teach)


@dataclasses.dataclass(frozen=True)
class NearestRecords:
    """The nearest records of samples that are drawn anew for every test and every answer."""

    knn: PrivateKNN

    @property
    def relations(self) -> tuple[Neighbours, ...]:
        """One record more or less moves one vote, whatever its place."""
        return (Neighbours.ADD_REMOVE, *_PLACES)

    def poll(
        self, room: Classroom, rows: Sequence[int], randomness: Randomness, *, seed: int, progress: Progress
    ) -> Poll:
        """Two samples for every row that will be asked."""
        del seed
        records, own = Split(room.features, room.records.targets), randomness.fork()
        found = []
        for share, purpose in ((0.5, "answer"), (1.0, "test")):
            found.append(self.knn.votes(records, room.question_features, rows, room.classes, own, purpose=purpose))
            progress(share)
        return Poll(found[0], found[1], self.knn.voters)
