"""What an audit of a data set does, with defaults that two cores finish in minutes."""

import dataclasses
import math

import numpy as np

from tacit.auditing.canaries import DEFAULT_KIND
from tacit.core.randomness import Randomness
from tacit.core.validation import check_choice, check_count, check_open_unit, check_positive
from tacit.datasets import DataSet, Split
from tacit.plan import DEFAULT_EPSILON, DPSGD, default_delta
from tacit.training import Settings, default_settings

_FEWEST_SHADOWS = 4
_FEWEST_RECORDS = 40
_CANARY_SHARE, _MOST_CANARIES = 8, 1000
_MOST_RECORDS, _MOST_LONG_RECORDS = 10_000, 5_000
_LONG_INPUT = 1024  # numbers: more than a grey image has
_CONVOLUTIONAL = "tanh-cnn"


@dataclasses.dataclass(frozen=True)
class AuditSettings:
    """What is done.

    Attributes:
        epsilon, delta: the claim of the private models.
        records: of the training split that make the pool, drawn at random; all of them where it has no more.
        training: how private models are trained. Half of the pool is trained on, in lots of half the size.
        canaries, canary_kind: see `tacit.auditing.canaries.plant`.
        shadows: N, the shadow models of each target.
        plain_epochs: how often a plain model sees its records.
        plain_rate: the learning rate of plain models, at the start.
        confidence: of each interval, and of the two bounds that test the claim, together.
    """

    epsilon: float
    delta: float
    records: int
    training: Settings
    canaries: int
    canary_kind: str
    shadows: int
    plain_epochs: int
    plain_rate: float
    confidence: float

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon, remedy="An audit tests a claim that may be wrong, such as 2.")
        check_open_unit("confidence", self.confidence, remedy="Usual is 0.95.")
        check_count("shadows", self.shadows, minimum=_FEWEST_SHADOWS, remedy="Attacks take a spread from them.")
        check_count("plain_epochs", self.plain_epochs)
        check_count("records", self.records, minimum=_FEWEST_RECORDS, remedy="Fewer show next to nothing.")
        check_choice("schedule", self.training.schedule, ("constant",), remedy="An audit trains at one rate.")
        check_choice("sampler", self.training.sampler, ("poisson",), remedy="Coins need the add-remove relation.")

    @classmethod
    def for_data(
        cls,
        data: DataSet,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        model: str | None = None,
        steps: int | None = None,
        canaries: int | None = None,
        canary_kind: str | None = None,
        records: int | None = None,
        shadows: int | None = None,
        plain_epochs: int | None = None,
        confidence: float = 0.95,
    ) -> "AuditSettings":
        """What suits a data set, by public facts about it, where nothing else is told.

        The whole experiment trains dozens of models, and should take minutes on two cores. So a large set gives a part
        of its records, and where ``tacit train`` takes a convolutional network, a perceptron stands in for it.
        """
        examples = min(len(data.train), _most_records(data) if records is None else records)
        return cls(
            epsilon=DEFAULT_EPSILON if epsilon is None else epsilon,
            delta=default_delta(examples) if delta is None else delta,
            records=examples,
            training=_training(data, model).changed(model=model, steps=steps),
            canaries=min(_MOST_CANARIES, examples // _CANARY_SHARE) if canaries is None else canaries,
            canary_kind=canary_kind or DEFAULT_KIND,
            shadows=16 if shadows is None else shadows,
            plain_epochs=60 if plain_epochs is None else plain_epochs,
            plain_rate=1e-3 if _is_long(data) else 3e-3,
            confidence=confidence,
        )

    @property
    def bound_confidence(self) -> float:
        """Of each of the two bounds that test the claim, so that both hold with ``confidence`` (Bonferroni)."""
        return 1 - (1 - self.confidence) / 2

    def plan(self, examples: int) -> DPSGD:
        """Of each private model. The number of examples is half of the pool's, whatever the coins give it."""
        half = max(1, examples // 2)
        return DPSGD(
            expected_batch_size=min(half, max(1, self.training.batch_size // 2)),
            examples=half,
            steps=self.training.steps_for(examples),
            clipping=self.training.clipping_rule(),
            delta=self.delta,
            epsilon=self.epsilon,
        )

    def drawn_from(self, data: DataSet, randomness: Randomness) -> DataSet:
        """The data with as many training records as the settings say, drawn at random."""
        if len(data.train) <= self.records:
            return data
        chosen = randomness.stream("pool").choice(len(data.train), size=self.records, replace=False)
        return dataclasses.replace(data, train=Split(*data.train[np.sort(chosen)]))


def _is_long(data: DataSet) -> bool:
    return math.prod(data.input_shape) > _LONG_INPUT


def _most_records(data: DataSet) -> int:
    return _MOST_LONG_RECORDS if _is_long(data) else _MOST_RECORDS


def _training(data: DataSet, model: str | None) -> Settings:
    usual = default_settings(data, model)
    if model is not None or usual.model != _CONVOLUTIONAL:
        return usual
    return Settings(model="mlp", batch_size=1024, epochs=20, learning_rate=0.2 if _is_long(data) else 0.5)
