"""What is done in a run of PATE."""

import dataclasses
from collections.abc import Callable

from torch import nn

from tacit.core.errors import InputError
from tacit.core.validation import check_choice, check_count, check_open_unit
from tacit.models import AS_THEY_ARE, FixedFeatures
from tacit.pate.aggregation import Aggregator
from tacit.pate.interactive import Interaction
from tacit.pate.selection import CHOICES
from tacit.pate.students import Student, StudentEnsemble
from tacit.pate.voters import Voters


@dataclasses.dataclass(frozen=True)
class Pate:
    """What is done.

    Attributes:
        voters: who votes.
        queries: how many public inputs are asked for, in all rounds together.
        aggregator: how noisy answers are made.
        interaction: how teachers and student take turns by interactive Confident-GNMax; its opening is the aggregator,
            its questions the queries. None asks all rounds alike.
        student: how the student learns that questions are chosen by, and that is released unless there is an ensemble.
        ensemble: who learns from all answers after the last question, and is released in the student's place.
        build_student: makes the student's network, and the ensemble's, on the device of the data.
        fixed: a public map of inputs to features, such as a scattering transform, on the device of the data; None takes
            inputs as they are. What public inputs decide comes after it: see `PublicFeatures`.
        directions, whitening: of those features; at most one direction for six public inputs.
        choose: which of them are asked for, of `CHOICES`. The least confident come after a first round of
            representative ones, when there is a student.
        rounds: of questions and lessons. From the second one on the features are those of `Classroom.seen_by`.
        public: which part of the test split is public and unlabelled, its ``first`` or its ``last``; the other part
            tests the student.
        public_share: how large that part is. None is nine tenths where that leaves enough, else half.
        delta: of the guarantee.
        publish_epsilon: also makes an epsilon for these votes that may be published, and pays for it: see
            `tacit.pate.publishing`.
        seed: of everything that is public: order, first weights.
    """

    voters: Voters
    queries: int
    aggregator: Aggregator
    student: Student
    build_student: Callable[[], nn.Module]
    ensemble: StudentEnsemble | None = None
    fixed: nn.Module | None = None
    directions: int = 300
    whitening: float = 0.25
    choose: str = "representative"
    rounds: int = 1
    interaction: Interaction | None = None
    public: str = "first"
    public_share: float | None = None
    delta: float = 1e-5
    publish_epsilon: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("queries", self.queries)
        check_choice("public", self.public, ("first", "last"))
        check_choice("choose", self.choose, CHOICES)
        check_count("rounds", self.rounds)
        if self.rounds > self.queries:
            raise InputError(f"rounds={self.rounds}: must be at most the {self.queries} queries, one for each.")
        check_open_unit("delta", self.delta)
        self._check_interaction()

    @property
    def aggregation(self) -> str:
        """The name of how answers are made, as on the command line."""
        return self.aggregator.name if self.interaction is None else self.interaction.name

    @property
    def learning(self) -> str:
        """The name of how what is released has learned, as on the command line."""
        return self.student.name if self.ensemble is None else self.ensemble.name

    @property
    def features(self) -> str | None:
        """The name of the fixed map, of `tacit.models.FIXED_FEATURES`; None for a map of the user's own."""
        if self.fixed is None:
            return AS_THEY_ARE
        return self.fixed.name if isinstance(self.fixed, FixedFeatures) else None

    @property
    def asking(self) -> tuple[tuple[Aggregator, int], ...]:
        """How many questions each aggregator gets at most."""
        if self.interaction is None:
            return ((self.aggregator, self.queries),)
        opening = self.interaction.questions[0]
        parts = ((self.aggregator, opening), (self.interaction.checking, self.queries - opening))
        return tuple(part for part in parts if part[1])

    def _check_interaction(self) -> None:
        how = self.interaction
        if how is None:
            return
        if (how.opening, sum(how.questions), len(how.questions)) != (self.aggregator, self.queries, self.rounds):
            raise InputError(
                f"interaction={how!r}: its opening must be the aggregator, and its questions the "
                f"{self.queries} queries in {self.rounds} rounds."
            )
