"""PATE on images: LNMax of 2017, Confident-GNMax of 2018 and Private-kNN of 2020, each with a student of ours.

The public inputs are the first nine tenths of the test split, without their labels, and the student is tested on the
rest; ``public=last`` is the other way round. Teachers are linear models on scattering features, whose directions the
public inputs decide. The student is an ensemble that learns after one which guides the questions; ``student``
names another kind, and ``networks``, ``perceptrons`` and ``ensemble_steps`` make it smaller.

Epsilon of LNMax and Confident-GNMax depends on the votes, as in the papers: in earnest it is private until it is
published with noise. ``epsilons`` holds what the answers cost whatever the votes.
"""

import dataclasses
import functools
import statistics
from typing import Any

from tacit.core.randomness import Randomness
from tacit.datasets import load
from tacit.pate.calibration import DEFAULT_RATE
from tacit.pate.experiment import STAGES, PateResult, run_pate, terms_for
from tacit.pate.plan import Pate
from tacit.pate.record import pate_statement
from tacit.pate.settings import ENSEMBLE, Choices, pate_settings
from tacit.recipes.conditions import TRAINING, Conditions, Progress, provenance
from tacit.recipes.holding_out import hold_out
from tacit.recipes.interrupting import keeping_seeds
from tacit.recipes.knob_rules import check_unchanged
from tacit.recipes.recipe import DELTA, Published, Recipe

PATE_2017 = (
    "Papernot et al., Semi-supervised Knowledge Transfer for Deep Learning from Private Training Data, ICLR 2017"
)
_2018 = "Papernot et al., Scalable Private Learning with PATE, ICLR 2018"
_2020 = "Zhu, Yu, Chandraker, Wang, Private-kNN: Practical Differential Privacy for Computer Vision, CVPR 2020"
BY_MOMENTS = "moments of the votes"
_TICKS = 100  # of the progress bar, for each stage


@dataclasses.dataclass(frozen=True)
class Knobs:
    """What ``--set`` may change; None takes what suits, as in `Choices`."""

    queries: int = 100
    teachers: int = 250
    teacher: str = "linear"
    student: str | None = ENSEMBLE
    networks: int | None = None
    perceptrons: int | None = None
    ensemble_steps: int | None = None
    public: str = "first"
    gamma: float | None = None
    sigma: float | None = None
    threshold: float | None = None
    sigma_threshold: float | None = None
    epsilon: float | None = None
    sampling_rate: float = DEFAULT_RATE
    voters: int | None = None
    choose: str = "representative"
    rounds: int | None = None
    delta: float = DELTA


def run(
    dataset: str,
    aggregator: str,
    published: tuple[Published, ...],
    knobs: Knobs,
    conditions: Conditions,
    progress: Progress,
) -> dict[str, Any]:
    """A whole run of PATE for each seed, each of which the account pays for, if there is one."""
    if aggregator == "private-knn":
        check_unchanged(knobs, ["teachers", "teacher"], "private-knn has none")
    choices = Choices(aggregator=aggregator, **dataclasses.asdict(knobs))  # refuses before anything is loaded
    data = load(dataset)
    data = (hold_out(data) if conditions.held_out else data).to(conditions.device)
    plans = [pate_settings(data, dataclasses.replace(choices, seed=seed)) for seed in range(conditions.seeds)]
    figure = next((one for one in published if one.note == f"{knobs.queries} queries"), None)
    results: list[PateResult] = []

    def summary() -> dict[str, Any]:
        return _summary(results, plans[0], figure, dataclasses.replace(conditions, seeds=len(results)))

    with keeping_seeds(conditions.seeds, lambda: len(results), summary):
        for seed, plan in enumerate(plans):
            terms = terms_for(plan, conditions.account, run=f"{aggregator} on {dataset}, seed {seed}")
            tell = functools.partial(_tell, progress, seed)
            results.append(run_pate(data, plan, Randomness(), terms=terms, progress=tell))
    return summary()


def _summary(results: list[PateResult], plan: Pate, figure: Published | None, conditions: Conditions) -> dict[str, Any]:
    accuracies = [result.student_accuracy for result in results]
    independent = statistics.fmean(result.epsilon_data_independent for result in results)
    for_votes = [result.epsilon.unsafe_value for result in results if result.epsilon is not None]
    return {
        "published": None if figure is None else figure.accuracy,
        "published_epsilon": None if figure is None else figure.epsilon,
        "published_accountant": None if figure is None else figure.accountant,
        "measured": statistics.fmean(accuracies),
        "std": statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        "accuracies": accuracies,
        "measured_on": "held-out training examples" if conditions.held_out else "test examples that were not public",
        "epsilon": statistics.fmean(for_votes) if for_votes else independent,
        "epsilon_note": "these votes, private" if for_votes else None,
        "epsilon_is_private": bool(for_votes),
        "delta": plan.delta,
        "epsilon_by_accountant": {},
        "epsilons": {"whatever the votes": independent},
        "noise_multiplier": None,
        "steps": len(results[0].answers.asked),
        "answered": statistics.fmean(len(result.answers.rows) for result in results),
        "beside": {"answers right": statistics.fmean(result.aggregator_accuracy for result in results)},
        "training": {"aggregator": plan.aggregation, "student": plan.learning},
        "statement": str(pate_statement(results[0], plan, plan.voters.unit)),
        "seconds": sum(result.seconds for result in results),
        "seconds_a_seed": statistics.fmean(result.seconds for result in results),
        "history": [],
        **provenance(conditions),
    }


def _tell(progress: Progress, seed: int, stage: str, share: float) -> None:
    done = STAGES.index(stage) + share
    progress(seed, round(_TICKS * done), _TICKS * len(STAGES), 0.0, TRAINING)


_LNMAX = ("pate2017", "PATE, LNMax", PATE_2017, "lnmax")
_CONFIDENT = ("pate2018", "PATE, Confident-GNMax", _2018, "confident-gnmax")
_NEAREST = ("private-knn", "Private-kNN", _2020, "private-knn")


def _recipe(way: tuple[str, str, str, str], dataset: str, queries: int, *published: Published) -> Recipe:
    name, method, source, aggregator = way
    return Recipe(
        name=f"{name}-{dataset}",
        title=f"{method} on {dataset}, with public inputs",
        method=method,
        source=source,
        dataset=dataset,
        knobs=Knobs(queries=queries, delta=_DELTAS.get(dataset, DELTA)),
        published=published,
        run=functools.partial(run, dataset, aggregator, published),
    )


def _figure(epsilon: float, accuracy: float, queries: int, accountant: str) -> Published:
    return Published(epsilon, accuracy, accountant, f"{queries} queries")


_DELTAS = {"svhn": 1e-6}
_RDP = "rdp of the votes"
RECIPES = (
    _recipe(_LNMAX, "mnist", 100, _figure(2.04, 0.98, 100, BY_MOMENTS), _figure(8.03, 0.981, 1000, BY_MOMENTS)),
    _recipe(_CONFIDENT, "mnist", 640, _figure(1.97, 0.985, 640, _RDP)),
    _recipe(_NEAREST, "mnist", 200, _figure(0.47, 0.988, 735, "rdp")),
    _recipe(_LNMAX, "fashion-mnist", 100),
    _recipe(_CONFIDENT, "fashion-mnist", 640),
    _recipe(_NEAREST, "fashion-mnist", 200),
    _recipe(_LNMAX, "svhn", 500, _figure(5.04, 0.827, 500, BY_MOMENTS), _figure(8.19, 0.9066, 1000, BY_MOMENTS)),
    _recipe(_CONFIDENT, "svhn", 8500, _figure(4.96, 0.916, 8500, _RDP)),
    _recipe(_NEAREST, "svhn", 2939, _figure(0.49, 0.916, 2939, "rdp")),
)
