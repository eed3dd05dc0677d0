"""A whole run of PATE from a few choices by name, with what suits the data in the place of the others."""

import dataclasses
import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from torch import nn

from tacit.core.errors import InputError
from tacit.core.validation import check_choice, check_count
from tacit.datasets import DataSet
from tacit.models import FixedFeatures, build
from tacit.models.simple import LARGE_IMAGE
from tacit.pate.aggregation import Aggregator, ConfidentGNMax, GNMax, LNMax
from tacit.pate.calibration import DEFAULT_RATE, calibrated_knn
from tacit.pate.interactive import Interaction
from tacit.pate.neighbours import PrivateKNN
from tacit.pate.plan import Pate
from tacit.pate.students import GAN, FixMatch, RunningTargets, SelfTraining, Student, StudentEnsemble, Supervised
from tacit.pate.teachers import TeacherTraining
from tacit.pate.voters import NearestRecords, Shares, Voters, estimator_voters, linear_voters, network_voters

INTERACTIVE = "interactive-gnmax"
AGGREGATORS = ("lnmax", "gnmax", "confident-gnmax", INTERACTIVE, "private-knn")
ENSEMBLE = "ensemble"
STUDENTS = (ENSEMBLE, "running-targets", "self-training", "fixmatch", "gan", "supervised")
ESTIMATORS: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {
        "logistic": lambda: LogisticRegression(max_iter=300),
        "forest": RandomForestClassifier,
        "bayes": GaussianNB,
    }
)
"""Teachers by scikit-learn, on the features; from Python any classifier by `estimator_voters`."""
TEACHERS = ("linear", "network", *ESTIMATORS)
_TESTING = ("confident-gnmax", INTERACTIVE, "private-knn")
_HEEDED_BY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "gamma": ("lnmax",),
        "sigma": ("gnmax", *_TESTING),
        "threshold": _TESTING,
        "sigma_threshold": _TESTING,
        "check_threshold": (INTERACTIVE,),
        "confidence": (INTERACTIVE,),
        "voters": ("private-knn",),
        "sampling_rate": ("private-knn",),
    }
)
"""Which aggregators each choice is for: noise that somebody asked for must not be left out in silence."""

_PUBLISHED_GAMMA = 12.5  # over the number of teachers: 0.05 for the paper's 250
_PUBLISHED_SIGMA = 0.16  # and so on, times the number of teachers: 40, 200 and 150 for 250
_PUBLISHED_THRESHOLD = 0.8
_PUBLISHED_THRESHOLD_NOISE = 0.6
_CHECK_THRESHOLD = 0.4  # of the teachers, beyond what the student expects
_KNN_EPSILON = 0.5
_TURNS = 4  # of spreading and learning, in all rounds of questions together
_WHITENING, _PIXEL_WHITENING = 0.35, 0.2  # of scattering features, and of inputs as they are


@dataclasses.dataclass(frozen=True)
class Choices:
    """What a user may say; None takes what suits.

    Attributes:
        teachers: how many.
        queries: how many public inputs are asked for.
        aggregator, student, teacher: by name, of `AGGREGATORS`, `STUDENTS` and `TEACHERS`.
        networks, perceptrons, ensemble_steps: of an ensemble: how many of each kind, and the steps of a network.
        gamma: of lnmax.
        sigma, threshold, sigma_threshold: of gnmax, confident-gnmax, interactive-gnmax and private-knn.
        check_threshold, confidence: of interactive-gnmax: how many teachers more than a student expects must want a
            class, and how sure the student must be where they do not.
        epsilon: of private-knn, whatever the votes, in the place of sigma: noise for all questions and answers.
        sampling_rate, voters: of private-knn.
        model: the student's network.
        teacher_model: that of network teachers; from Python any torch model by `network_voters`.
        keep_teachers: a folder for network teachers that are trained, so that a crash costs only those in work;
            private.
        owners: of each training record, such as user names: then all that one has goes to one teacher.
        choose, rounds: which public inputs are asked for, and in how many rounds, as in `Pate`; None takes two rounds
            for private-knn on images, whose second one looks through the student's eyes, and for interactive-gnmax,
            one for all others.
        public: the ``first`` or ``last`` part of the test split.
        delta, publish_epsilon, seed: as in `Pate`.
    """

    teachers: int = 250
    queries: int = 100
    aggregator: str = "lnmax"
    student: str | None = None
    teacher: str = "linear"
    networks: int | None = None
    perceptrons: int | None = None
    ensemble_steps: int | None = None
    gamma: float | None = None
    sigma: float | None = None
    threshold: float | None = None
    sigma_threshold: float | None = None
    check_threshold: float | None = None
    confidence: float | None = None
    epsilon: float | None = None
    sampling_rate: float = DEFAULT_RATE
    voters: int | None = None
    model: str | None = None
    teacher_model: str | None = None
    keep_teachers: Path | None = None
    owners: Sequence[Hashable] | None = None
    choose: str = "representative"
    rounds: int | None = None
    public: str = "first"
    delta: float = 1e-5
    publish_epsilon: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("aggregator", self.aggregator, AGGREGATORS)
        if self.student is not None:
            check_choice("student", self.student, STUDENTS)
        check_choice("teacher", self.teacher, TEACHERS)
        check_count("teachers", self.teachers)
        check_count("queries", self.queries)
        if self.rounds is not None:
            check_count("rounds", self.rounds)
        self._check_teachers()
        for name in ("networks", "perceptrons", "ensemble_steps"):
            if getattr(self, name) is not None and self.student != ENSEMBLE:
                raise InputError(f"{name}={getattr(self, name)}: is for student {ENSEMBLE} alone. Leave it out.")
        self._check_heeded()
        if self.epsilon is not None and self.aggregator != "private-knn":
            raise InputError(
                f"epsilon={self.epsilon:g}: sets the noise of private-knn alone. Take gamma or sigma here, or a ledger "
                "with a budget that ends the questions."
            )

    def _check_heeded(self) -> None:
        """Refuses what the aggregator chosen would not look at."""
        usual = {field.name: field.default for field in dataclasses.fields(self)}
        for name, aggregators in _HEEDED_BY.items():
            if self.aggregator not in aggregators and getattr(self, name) != usual[name]:
                raise InputError(
                    f"{name}={getattr(self, name):g}: is for {', '.join(aggregators)} alone, and the aggregator is "
                    f"{self.aggregator}. Leave it out, or take another aggregator."
                )

    def _check_teachers(self) -> None:
        """Refuses what the teachers chosen would not look at."""
        for name in ("teacher_model", "keep_teachers"):
            if getattr(self, name) is not None and (self.teacher != "network" or self.aggregator == "private-knn"):
                raise InputError(f"{name}={str(getattr(self, name))!r}: is for networks alone. Take teacher network.")
        if self.owners is not None and self.aggregator == "private-knn":
            raise InputError(
                "owners: private-knn has no teachers that records are dealt out to. Take another aggregator."
            )


def pate_settings(data: DataSet, choices: Choices) -> Pate:
    """The run that was chosen, for a data set whose tensors are where it shall run.

    The number of its training records is taken as public, as that of a named set is: private-knn has a share of them
    as voters unless told. Where it is private, give ``voters``.
    """
    device, large = data.train.inputs.device, _is_large_image(data)
    name = choices.model or ("norm-cnn-wide" if large else "mlp")
    aggregator = _aggregator(data, choices)
    rounds = _rounds(choices, large)
    return Pate(
        voters=_voters(data, choices, aggregator),
        queries=choices.queries,
        aggregator=aggregator,
        student=_student(choices, large, rounds),
        ensemble=_ensemble(choices),
        choose=choices.choose,
        rounds=rounds,
        interaction=_interaction(aggregator, choices, rounds),
        build_student=lambda: build(name, data.input_shape, data.classes).to(device),
        fixed=fixed_features(data),
        whitening=_WHITENING if large else _PIXEL_WHITENING,
        public=choices.public,
        delta=choices.delta,
        publish_epsilon=choices.publish_epsilon,
        seed=choices.seed,
    )


def fixed_features(data: DataSet) -> nn.Module | None:
    """Scattering features of images that are large enough, of MNIST's digits without their slant; else none."""
    if not _is_large_image(data):
        return None
    name = "upright-scattering" if data.name == "mnist" else "scattering"
    return FixedFeatures(name, data.input_shape).to(data.train.inputs.device)


def _aggregator(data: DataSet, choices: Choices) -> Aggregator:
    teachers = choices.teachers
    if choices.aggregator == "lnmax":
        return LNMax(_PUBLISHED_GAMMA / teachers if choices.gamma is None else choices.gamma)
    if choices.aggregator == "private-knn":
        return _private_knn(len(data.train), choices)
    sigma = _PUBLISHED_SIGMA * teachers if choices.sigma is None else choices.sigma
    if choices.aggregator == "gnmax":
        return GNMax(sigma)
    return ConfidentGNMax(
        _PUBLISHED_THRESHOLD * teachers if choices.threshold is None else choices.threshold,
        _PUBLISHED_THRESHOLD_NOISE * teachers if choices.sigma_threshold is None else choices.sigma_threshold,
        sigma,
    )


def _rounds(choices: Choices, large: bool) -> int:
    several = choices.aggregator == INTERACTIVE or (choices.aggregator == "private-knn" and large)
    return (2 if several else 1) if choices.rounds is None else choices.rounds


def _interaction(opening: Aggregator, choices: Choices, rounds: int) -> Interaction | None:
    """The questions in equal parts, and the opening's noise in all of them."""
    if choices.aggregator != INTERACTIVE or not isinstance(opening, ConfidentGNMax):
        return None
    check_count("rounds", rounds, minimum=2, remedy="A student must be there before teachers can object to it.")
    threshold = _CHECK_THRESHOLD * choices.teachers if choices.check_threshold is None else choices.check_threshold
    ends = [choices.queries * part // rounds for part in range(rounds + 1)]
    questions = tuple(end - start for start, end in itertools.pairwise(ends))
    confidence = Interaction.confidence if choices.confidence is None else choices.confidence
    return Interaction(
        opening, dataclasses.replace(opening, threshold=threshold), questions, confidence, choices.choose
    )


def _private_knn(records: int, choices: Choices) -> PrivateKNN:
    """Noise for an epsilon, and what the user says in the place of it."""
    found = calibrated_knn(
        records,
        choices.queries,
        epsilon=_KNN_EPSILON if choices.epsilon is None else choices.epsilon,
        delta=choices.delta,
        sampling_rate=choices.sampling_rate,
        voters=choices.voters,
        threshold=choices.threshold,
    )
    said = {"sigma": choices.sigma, "sigma_threshold": choices.sigma_threshold}
    known = {name: value for name, value in said.items() if value is not None}
    if choices.threshold is None and choices.sigma_threshold is not None:
        raise InputError(
            f"sigma_threshold={choices.sigma_threshold:g}: there is no test without a threshold. Give both, or none."
        )
    if known and choices.epsilon is not None:
        raise InputError(f"epsilon={choices.epsilon:g}: sets the noise, and so does {next(iter(known))}. Take one.")
    return dataclasses.replace(found, noise=_said(found.noise, known))


def _said(noise: GNMax | ConfidentGNMax, known: dict[str, float]) -> GNMax | ConfidentGNMax:
    if isinstance(noise, ConfidentGNMax):
        return dataclasses.replace(noise, **known)
    return GNMax(known.get("sigma", noise.sigma))


def _voters(data: DataSet, choices: Choices, aggregator: Aggregator) -> Voters:
    if isinstance(aggregator, PrivateKNN):
        return NearestRecords(aggregator)
    shares = Shares(choices.teachers, choices.owners)
    if choices.teacher == "linear":
        return linear_voters(shares)
    if choices.teacher in ESTIMATORS:
        return estimator_voters(shares, ESTIMATORS[choices.teacher]())
    name = choices.teacher_model or ("norm-cnn" if _is_large_image(data) else "mlp")
    training = TeacherTraining(seed=choices.seed, folder=choices.keep_teachers)
    return network_voters(shares, lambda: build(name, data.input_shape, data.classes), training)


def _student(choices: Choices, large: bool, rounds: int) -> Student:
    """By name. A student that goes on in every round shares its turns among them; others begin anew."""
    suits = "self-training" if large else "fixmatch"
    name = suits if choices.student in (None, ENSEMBLE) else choices.student
    turns = _TURNS if choices.aggregator == INTERACTIVE else max(1, _TURNS // rounds)
    students: dict[str, Student] = {
        "self-training": SelfTraining(rounds=turns),
        "running-targets": RunningTargets(),
        "fixmatch": FixMatch(),
        "gan": GAN(),
        "supervised": Supervised(),
    }
    return students[name]


def _ensemble(choices: Choices) -> StudentEnsemble | None:
    """Learns after a student of the kind that suits."""
    if choices.student != ENSEMBLE:
        return None
    usual = StudentEnsemble()
    steps = usual.running.steps if choices.ensemble_steps is None else choices.ensemble_steps
    return StudentEnsemble(
        networks=usual.networks if choices.networks is None else choices.networks,
        perceptrons=usual.perceptrons if choices.perceptrons is None else choices.perceptrons,
        running=dataclasses.replace(usual.running, steps=steps),
    )


def _is_large_image(data: DataSet) -> bool:
    return len(data.input_shape) == 3 and min(data.input_shape[1:]) >= LARGE_IMAGE
