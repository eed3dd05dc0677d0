"""PATE on images: LNMax of 2017, Confident-GNMax of 2018 and Private-kNN of 2020, each with a student of ours.

The public inputs are the first nine tenths of the test split, without their labels, and the student is tested on the
rest; ``public=last`` is the other way round. Teachers are linear models on scattering features, whose directions the
public inputs decide. The student is an ensemble that learns after one which guides the questions; ``student``
names another kind, and ``networks``, ``perceptrons`` and ``ensemble_steps`` make it smaller.

Epsilon of LNMax and Confident-GNMax depends on the votes, as in the papers: in earnest it is private until it is
published with noise. ``epsilons`` holds what the answers cost whatever the votes. With an account that is all that is
said, and the account must hold every question of all seeds before the first: seeds that asked less would be other runs.
"""

import dataclasses
import functools
import statistics
from typing import Any

from tacit.core.randomness import Randomness
from tacit.datasets import load
from tacit.pate.calibration import DEFAULT_RATE
from tacit.pate.experiment import STAGES, PateResult, run_pate
from tacit.pate.paying import require_runs, terms_for
from tacit.pate.plan import Pate
from tacit.pate.record import pate_statement
from tacit.pate.settings import ENSEMBLE, Choices, pate_settings
from tacit.recipes.conditions import TRAINING, Conditions, Progress, seed_facts
from tacit.recipes.holding_out import hold_out
from tacit.recipes.interrupting import seed_by_seed
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
    require_runs(plans, conditions.account)
    figure = next((one for one in published if one.note == f"{knobs.queries} queries"), None)

    def teach(seed: int) -> PateResult:
        terms = terms_for(plans[seed], conditions.account, run=f"{aggregator} on {dataset}, seed {seed}")
        tell = functools.partial(_tell, progress, seed)
        return run_pate(data, plans[seed], Randomness(), terms=terms, progress=tell)

    return seed_by_seed(range(conditions.seeds), teach, lambda results: _summary(results, plans[0], figure, conditions))


def _summary(results: list[PateResult], plan: Pate, figure: Published | None, conditions: Conditions) -> dict[str, Any]:
    independent = statistics.fmean(result.epsilon_data_independent for result in results)
    return {
        "published": None if figure is None else figure.accuracy,
        "published_epsilon": None if figure is None else figure.epsilon,
        "published_accountant": None if figure is None else figure.accountant,
        "measured_on": "held-out training examples" if conditions.held_out else "test examples that were not public",
        **_epsilon_facts(results, independent, conditions),
        "delta": plan.delta,
        "epsilon_by_accountant": {},
        "epsilons": {"whatever the votes": independent},
        "noise_multiplier": None,
        "steps": len(results[0].answers.asked),
        "answered": statistics.fmean(len(result.answers.rows) for result in results),
        "beside": {"answers right": statistics.fmean(result.aggregator_accuracy for result in results)},
        "training": {"aggregator": plan.aggregation, "student": plan.learning},
        "statement": str(pate_statement(results[0], plan, plan.voters.unit)),
        **seed_facts(
            [result.student_accuracy for result in results], [result.seconds for result in results], [], conditions
        ),
    }


def _epsilon_facts(results: list[PateResult], independent: float, conditions: Conditions) -> dict[str, Any]:
    """That of these votes, as in the papers; where an account pays, what may be told: that whatever the votes."""
    for_votes = [result.epsilon.unsafe_value for result in results if result.epsilon is not None]
    if conditions.account is not None or not for_votes:
        return {"epsilon": independent, "epsilon_note": None, "epsilon_is_private": False}
    return {"epsilon": statistics.fmean(for_votes), "epsilon_note": "these votes, private", "epsilon_is_private": True}


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
