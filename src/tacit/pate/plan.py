"""What is done in a run of PATE."""

import dataclasses
from collections.abc import Callable

from torch import nn

from tacit.core.errors import InputError
from tacit.core.validation import check_choice, check_count, check_open_unit
from tacit.datasets.features import FeatureMap
from tacit.pate.aggregation import Aggregator
from tacit.pate.students import Student
from tacit.pate.voters import Voters

CHOICES = ("representative", "random", "least-confident")


@dataclasses.dataclass(frozen=True)
class Pate:
    """What is done.

    Attributes:
        voters: who votes.
        queries: how many public inputs are asked for, in all rounds together.
        aggregator: how noisy answers are made.
        student: how the student learns.
        build_student: makes its network, on the device of the data.
        fixed: a public map of inputs to features, such as a scattering transform; None takes inputs as they are. What
            public inputs decide comes after it: see `PublicFeatures`.
        directions, whitening: of those features; at most one direction for six public inputs.
        choose: which of them are asked for, of `CHOICES`. The least confident come after a first round of
            representative ones, when there is a student.
        rounds: of questions and lessons. From the second one on the features are those of `Classroom.seen_by`.
        public: which part of the test split is public and unlabelled, its ``first`` or its ``last``; the other part
            tests the student.
        public_share: how large that part is. None is nine tenths where that leaves enough, else half.
        delta: of the guarantee.
        publish_epsilon: also makes an epsilon for these votes that may be published (`published_epsilon`). A ledger
            does not know its cost, so that it is refused there.
        seed: of everything that is public: order, first weights.
    """

    voters: Voters
    queries: int
    aggregator: Aggregator
    student: Student
    build_student: Callable[[], nn.Module]
    fixed: FeatureMap | None = None
    directions: int = 300
    whitening: float = 0.25
    choose: str = "representative"
    rounds: int = 1
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
