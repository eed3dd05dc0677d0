"""A whole run of PATE from a few choices by name, with what suits the data in the place of the others."""

import dataclasses

from tacit.core.errors import InputError
from tacit.core.validation import check_choice, check_count
from tacit.datasets import DataSet
from tacit.datasets.features import FeatureMap
from tacit.models import Upright, balanced_scattering, build
from tacit.models.simple import LARGE_IMAGE
from tacit.pate.aggregation import Aggregator, ConfidentGNMax, GNMax, LNMax
from tacit.pate.calibration import DEFAULT_RATE, calibrated_knn
from tacit.pate.neighbours import PrivateKNN
from tacit.pate.plan import Pate
from tacit.pate.students import GAN, FixMatch, SelfTraining, Student, Supervised
from tacit.pate.voters import NearestRecords, Shares, Voters, linear_voters, network_voters

AGGREGATORS = ("lnmax", "gnmax", "confident-gnmax", "private-knn")
STUDENTS = ("self-training", "fixmatch", "gan", "supervised")
TEACHERS = ("linear", "network")

_PUBLISHED_GAMMA = 12.5  # over the number of teachers: 0.05 for the paper's 250
_PUBLISHED_SIGMA = 0.16  # and so on, times the number of teachers: 40, 200 and 150 for 250
_PUBLISHED_THRESHOLD = 0.8
_PUBLISHED_THRESHOLD_NOISE = 0.6
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
        gamma: of lnmax.
        sigma, threshold, sigma_threshold: of gnmax, confident-gnmax and private-knn.
        epsilon: of private-knn, whatever the votes, in the place of sigma: noise for all questions and answers.
        sampling_rate, voters: of private-knn.
        model: the network of student and network teachers.
        choose, rounds: which public inputs are asked for, and in how many rounds, as in `Pate`; None takes two rounds
            for private-knn on images, whose second one looks through the student's eyes, and one for all others.
        public: the ``first`` or ``last`` part of the test split.
        delta, publish_epsilon, seed: as in `Pate`.
    """

    teachers: int = 250
    queries: int = 100
    aggregator: str = "lnmax"
    student: str | None = None
    teacher: str = "linear"
    gamma: float | None = None
    sigma: float | None = None
    threshold: float | None = None
    sigma_threshold: float | None = None
    epsilon: float | None = None
    sampling_rate: float = DEFAULT_RATE
    voters: int | None = None
    model: str | None = None
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
        if self.epsilon is not None and self.aggregator != "private-knn":
            raise InputError(
                f"epsilon={self.epsilon:g}: sets the noise of private-knn alone. Take gamma or sigma here, or a ledger "
                "with a budget that ends the questions."
            )


def pate_settings(data: DataSet, choices: Choices) -> Pate:
    """The run that was chosen, for a data set whose tensors are where it shall run."""
    device, large = data.train.inputs.device, _is_large_image(data)
    name = choices.model or ("norm-cnn-wide" if large else "mlp")
    aggregator = _aggregator(data, choices)
    rounds = choices.rounds or (2 if isinstance(aggregator, PrivateKNN) and large else 1)
    return Pate(
        voters=_voters(data, choices, aggregator),
        queries=choices.queries,
        aggregator=aggregator,
        student=_student(choices.student or ("self-training" if large else "fixmatch"), rounds),
        choose=choices.choose,
        rounds=rounds,
        build_student=lambda: build(name, data.input_shape, data.classes).to(device),
        fixed=fixed_features(data),
        whitening=_WHITENING if large else _PIXEL_WHITENING,
        public=choices.public,
        delta=choices.delta,
        publish_epsilon=choices.publish_epsilon,
        seed=choices.seed,
    )


def fixed_features(data: DataSet) -> FeatureMap | None:
    """Scattering features of images that are large enough, of MNIST's digits without their slant; else none."""
    if not _is_large_image(data):
        return None
    scattering = balanced_scattering(data.input_shape).to(data.train.inputs.device)
    return scattering if data.name != "mnist" else lambda images: scattering(Upright()(images))


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
    shares = Shares(choices.teachers)
    if choices.teacher == "linear":
        return linear_voters(shares)
    name = choices.model or ("norm-cnn" if _is_large_image(data) else "mlp")
    return network_voters(shares, lambda: build(name, data.input_shape, data.classes))


def _student(name: str, rounds: int) -> Student:
    students: dict[str, Student] = {
        "self-training": SelfTraining(rounds=max(1, _TURNS // rounds)),
        "fixmatch": FixMatch(),
        "gan": GAN(),
        "supervised": Supervised(),
    }
    return students[name]


def _is_large_image(data: DataSet) -> bool:
    return len(data.input_shape) == 3 and min(data.input_shape[1:]) >= LARGE_IMAGE
