"""Who votes on the questions: networks, linear models, scikit-learn estimators, or the nearest records."""

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from tacit.core.errors import InputError
from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.core.validation import check_count
from tacit.datasets import Split
from tacit.pate.ensemble import Progress
from tacit.pate.estimators import EstimatorTeachers
from tacit.pate.linear_teachers import LinearFitting, LinearTeachers
from tacit.pate.neighbours import PrivateKNN
from tacit.pate.partition import Indices, partition, partition_by_identity
from tacit.pate.teachers import Teachers, TeacherTraining
from tacit.pate.votes import Votes, count_votes

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
        voters: how many vote on a question; of nearest records at most so many, which is public.
        excluded: teachers that never vote, since they could not be trained.
    """

    unsafe_votes: Votes
    unsafe_tested: Votes
    voters: int
    excluded: tuple[int, ...] = ()


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


@dataclasses.dataclass(frozen=True)
class LinearVoters:
    """Linear models on the features."""

    shares: Shares
    fitting: LinearFitting = dataclasses.field(default_factory=LinearFitting)

    @property
    def relations(self) -> tuple[Neighbours, ...]:
        """As the records are dealt out."""
        return self.shares.relations

    def poll(
        self, room: Classroom, rows: Sequence[int], randomness: Randomness, *, seed: int, progress: Progress
    ) -> Poll:
        """Every teacher on every question."""
        del rows, randomness
        records = Split(room.features, room.records.targets)
        parts = self.shares.parts(len(records), seed)
        teachers = LinearTeachers.train(records, room.classes, parts, self.fitting, progress)
        return _polled(teachers, room.question_features, room.classes)


@dataclasses.dataclass(frozen=True)
class NetworkVoters:
    """Networks on the inputs themselves."""

    shares: Shares
    build: Callable[[], nn.Module]
    training: TeacherTraining = dataclasses.field(default_factory=TeacherTraining)

    @property
    def relations(self) -> tuple[Neighbours, ...]:
        """As the records are dealt out."""
        return self.shares.relations

    def poll(
        self, room: Classroom, rows: Sequence[int], randomness: Randomness, *, seed: int, progress: Progress
    ) -> Poll:
        """Every teacher on every question."""
        del rows, randomness
        parts = self.shares.parts(len(room.records), seed)
        teachers = Teachers.train(self.build, room.records, parts, self.training, progress)
        return _polled(teachers, room.questions, room.classes)


@dataclasses.dataclass(frozen=True)
class EstimatorVoters:
    """Clones of a scikit-learn classifier on the features."""

    shares: Shares
    estimator: Any

    @property
    def relations(self) -> tuple[Neighbours, ...]:
        """As the records are dealt out."""
        return self.shares.relations

    def poll(
        self, room: Classroom, rows: Sequence[int], randomness: Randomness, *, seed: int, progress: Progress
    ) -> Poll:
        """Every teacher on every question."""
        del rows, randomness
        records = Split(room.features, room.records.targets)
        parts = self.shares.parts(len(records), seed)
        public = room.question_features
        teachers = EstimatorTeachers.train(self.estimator, records, parts, public=public, seed=seed, progress=progress)
        return _polled(teachers, public, room.classes)


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


def _polled(teachers: LinearTeachers | Teachers | EstimatorTeachers, inputs: Tensor, classes: int) -> Poll:
    votes = count_votes(teachers.predictions(inputs), classes)
    return Poll(votes, votes, teachers.count, teachers.excluded)
