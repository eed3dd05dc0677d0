"""Who votes on the questions: networks, linear models, scikit-learn estimators, or the nearest records."""

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from tacit.core.errors import InputError
from tacit.core.privacy import Neighbours, PrivacyUnit
from tacit.core.randomness import Randomness
from tacit.core.validation import check_count
from tacit.datasets import Split
from tacit.pate.estimators import EstimatorTeachers
from tacit.pate.learned_features import LearnedFeatures
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

    def seen_by(self, student: nn.Module) -> "Classroom":
        """The same, with what a student has learned to look at beside the features: see `LearnedFeatures`."""
        learned = LearnedFeatures(student, self.questions)
        return dataclasses.replace(
            self,
            features=learned(self.records.inputs, self.features),
            question_features=learned(self.questions, self.question_features),
        )


@dataclasses.dataclass(frozen=True)
class Poll:
    """The votes on all public inputs; private.

    Attributes:
        unsafe_votes: ``[questions, classes]``, for answers.
        unsafe_tested: the same for tests of how many agree; with trained teachers the same votes.
        voters: how many vote on a question at most, which is public.
        unsafe_excluded: teachers that have no opinion, since they could not be trained on what their parts hold.
    """

    unsafe_votes: Votes
    unsafe_tested: Votes
    voters: int
    unsafe_excluded: tuple[int, ...] = ()

    def followed_by(self, later: "Poll", rows: Sequence[int]) -> "Poll":
        """Both polls in one, with the votes of the later one on the rows that it was held for."""
        votes, tested = self.unsafe_votes.copy(), self.unsafe_tested.copy()
        votes[rows], tested[rows] = later.unsafe_votes[rows], later.unsafe_tested[rows]
        return dataclasses.replace(self, unsafe_votes=votes, unsafe_tested=tested)


Pollster = Callable[[Classroom, Sequence[int], Randomness], Poll]
"""Lets everybody vote, on these rows of the public inputs at least."""


class Voters(Protocol):
    """Votes of which one person moves one, from a class to another."""

    @property
    def unit(self) -> PrivacyUnit:
        """Who that is: whoever has one example, or a user with all of theirs."""
        ...

    @property
    def relations(self) -> tuple[Neighbours, ...]:
        """The relations for which that is true; the first one is the default."""
        ...

    def gather(self, room: Classroom, *, seed: int, progress: Progress) -> Pollster:
        """Trains whoever is going to vote; what comes back may be used in several rounds."""
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
    def unit(self) -> PrivacyUnit:
        """What is in one part as a whole."""
        return PrivacyUnit() if self.owners is None else PrivacyUnit("user")

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
        """Those that have no opinion, which was decided before the first question."""
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
    def unit(self) -> PrivacyUnit:
        """As the records are dealt out."""
        return self.shares.unit

    @property
    def relations(self) -> tuple[Neighbours, ...]:
        """As the records are dealt out."""
        return self.shares.relations

    def gather(self, room: Classroom, *, seed: int, progress: Progress) -> Pollster:
        """Every teacher learns once, and has one opinion of every question.

        One that is excluded counts for the first class on all of them: the number of votes stays public, and whatever
        happens to a teacher moves one vote, as sensitivities and smoothness have it.
        """
        teachers, questions = self.teach(room, self.shares.parts(len(room.records), seed), seed, progress)
        votes = count_votes(teachers.predictions(questions), room.classes)
        votes[:, 0] += len(teachers.excluded)
        poll = Poll(votes, votes, self.shares.teachers, teachers.excluded)
        return lambda _room, _rows, _randomness: poll


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
    def unit(self) -> PrivacyUnit:
        """Whoever has one record."""
        return PrivacyUnit()

    @property
    def relations(self) -> tuple[Neighbours, ...]:
        """One record more or less moves one vote, whatever its place."""
        return (Neighbours.ADD_REMOVE, *_PLACES)

    def gather(self, room: Classroom, *, seed: int, progress: Progress) -> Pollster:
        """Nobody learns anything."""
        del room, seed
        progress(1.0)
        return self._poll

    def _poll(self, room: Classroom, rows: Sequence[int], randomness: Randomness) -> Poll:
        """Two samples for every row that will be asked."""
        records, own = Split(room.features, room.records.targets), randomness.fork()
        answer, test = (
            self.knn.votes(records, room.question_features, rows, room.classes, own, purpose=purpose)
            for purpose in ("answer", "test")
        )
        return Poll(answer, test, self.knn.voters)
