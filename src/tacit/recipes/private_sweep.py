"""A sweep that pays for its choice: a random number of trials, the best of which is all that anyone sees."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from tacit.accounting.selection import TruncatedNegativeBinomial
from tacit.core.errors import InputError
from tacit.core.privacy import Budget
from tacit.core.randomness import Randomness
from tacit.core.validation import check_choice, check_open_unit, check_positive
from tacit.datasets import DataSet, Split
from tacit.datasets.partition import public_uniforms
from tacit.mechanisms.trial_count import draw_candidate, draw_trial_count
from tacit.recipes.conditions import Conditions, provenance
from tacit.recipes.knobs import full_name
from tacit.recipes.measuring import Trained, train_model
from tacit.recipes.recipe import DELTA, Configuration, Recipe
from tacit.recipes.selection_plan import ACCOUNTANT, SelectionPlan, plan_selection, with_noise
from tacit.recipes.sweeping import Axis, combine, private_configurations
from tacit.training.evaluation import evaluate
from tacit.training.run_folder import RunFolder

SCORED_SHARE = 0.2
_EPSILON, _TRIALS = 3.0, 10.0
_BUDGET_KNOBS = ("epsilon", "noise_multiplier", "delta")
STOPPING: Mapping[str, float] = {"logarithmic": 0.0, "geometric": 1.0}
"""Shapes of the distribution of the number of trials, by name."""


@dataclasses.dataclass(frozen=True)
class Selection:
    """What a private selection may cost, and how many trials it makes."""

    budget: Budget
    trials: TruncatedNegativeBinomial

    @classmethod
    def read(
        cls,
        private: bool,
        *,
        epsilon: float | None,
        delta: float | None,
        mean_trials: float | None,
        stopping: str | None,
    ) -> "Selection | None":
        """From what a command was told; None where no selection is asked for, and then nothing else may be told."""
        given = {"epsilon": epsilon, "delta": delta, "trials": mean_trials, "stopping": stopping}
        if not private:
            for name, value in given.items():
                if value is not None:
                    raise InputError(
                        f"{name}={value!r}: is for --private. Add that, or set knobs of the models with --set."
                    )
            return None
        shape = STOPPING[check_choice("stopping", stopping or "logarithmic", STOPPING)]
        budget = Budget(
            _EPSILON if epsilon is None else check_positive("epsilon", epsilon),
            DELTA if delta is None else check_open_unit("delta", delta),
        )
        return cls(budget, TruncatedNegativeBinomial.with_mean(_TRIALS if mean_trials is None else mean_trials, shape))


@dataclasses.dataclass(frozen=True)
class Winner:
    """The one trial that is released.

    Attributes:
        candidate: the number of its configuration.
        trained: its model.
        score: the noisy number of right predictions on the scored records; the best of several, so rather too high.
    """

    candidate: int
    trained: Trained
    score: int


def run_private_sweep(
    subject: Recipe,
    axes: Sequence[Axis],
    settings: Mapping[str, str],
    selection: Selection,
    conditions: Conditions,
    folder: RunFolder,
) -> dict[str, Any]:
    """Selects among all combinations of the axes' values at the cost of its budget; writes and returns the winner.

    The whole cost is reserved and committed before the first trial. Nothing that is written, returned or kept in the
    ledger says how many trials there were or how long they took, since the guarantee covers neither.

    Raises:
        BudgetExceededError: the account does not hold the selection; nothing was spent.
    """
    with folder.dropped_if_empty():
        _check(axes, settings, conditions)
        combinations = combine(axes, settings)
        configurations = private_configurations(subject, combinations)
        starts = [configuration.make_start(conditions.device, _untold) for configuration in configurations]
        # The budget is the selection's: that of the knobs, which counts for nothing here, must refuse nothing.
        data = with_noise(configurations[0], 1.0, selection.budget.delta).load(conditions.device)
        shared = split_for_scoring(data)
        plan = plan_selection(configurations, len(shared.train), selection.budget, selection.trials)
        facts = provenance(conditions)  # before the first trial: a date at the end would tell how long they took
        _charge(plan, conditions, f"{folder.path.name} (private selection)")
        winner = select(configurations, shared, plan, conditions, Randomness())
    accuracy = evaluate(winner.trained.model, winner.trained.seen(data.test), data.task)
    chosen = combinations[winner.candidate]
    row = {
        **{axis.key: chosen[axis.key] for axis in axes},
        "test_accuracy": accuracy,
        "noisy_held_out_accuracy": winner.score / len(shared.test),
        "noise_multiplier": plan.plans[winner.candidate].noise_multiplier,
        "steps": plan.plans[winner.candidate].steps,
    }
    folder.save_model(_released(winner.trained))
    folder.write_run(_record(folder, configurations[winner.candidate], plan, winner, accuracy, chosen, facts))
    return {
        "name": subject.name,
        "dataset": subject.dataset,
        "over": [dataclasses.asdict(axis) for axis in axes],
        "settings": dict(settings),
        "private": True,
        "winner": chosen,
        "rows": [row],
        "figures": [],
        "test_accuracy": accuracy,
        "epsilon": plan.epsilon(),
        "delta": selection.budget.delta,
        "trials": selection.trials.describe(),
        "statement": str(plan.statement(winner.candidate)),
        "public_start": starts[winner.candidate],
        "run": str(folder.path),
        **facts,
    }


def _untold(done: int, steps: int) -> None:
    """A start is public, and made before anything is spent; nobody watches."""
    del done, steps


def split_for_scoring(data: DataSet) -> DataSet:
    """Training records in two: about a fifth, in the place of the test split, score what the others train.

    A row's number alone decides, whatever the other rows are: a record that is added at the end, or replaced or emptied
    in its place, changes one part alone. That is what parallel composition needs.
    """
    scored = public_uniforms(len(data.train)) < SCORED_SHARE
    if not scored.any() or scored.all():
        raise InputError(f"dataset={data.name!r}: has too few training examples to hold some out for a selection.")
    kept, held = np.flatnonzero(~scored), np.flatnonzero(scored)
    return dataclasses.replace(data, train=Split(*data.train[kept]), test=Split(*data.train[held]))


def select(
    configurations: Sequence[Configuration],
    data: DataSet,
    plan: SelectionPlan,
    conditions: Conditions,
    randomness: Randomness,
) -> Winner:
    """The best of a random number of trials, each with a configuration, initial weights and noise of its own.

    Args:
        configurations: one for each of the plan's.
        data: what `split_for_scoring` made.
        plan: must have been paid for.
        conditions: how to train; an account is not charged again.
        randomness: of the number of trials, the choices, and the noise on the scores.
    """
    alone = dataclasses.replace(conditions, account=None)
    best: Winner | None = None
    for trial in range(draw_trial_count(plan.trials, randomness.stream("trials"))):
        candidate = draw_candidate(len(configurations), randomness.stream("candidate", trial))
        seed = draw_candidate(2**31, randomness.stream("seed", trial))
        trained = train_model(configurations[candidate], data, plan.plans[candidate], seed, alone, {}, _silent)
        right = round(evaluate(trained.model, trained.seen(data.test), data.task) * len(data.test))
        score = plan.score.add_noise(right, randomness.stream("score", trial))
        if best is None or score > best.score:
            best = Winner(candidate, trained, score)
    if best is None:
        raise AssertionError("a truncated distribution has at least one trial")
    return best


def _check(axes: Sequence[Axis], settings: Mapping[str, str], conditions: Conditions) -> None:
    for key in [*(axis.key for axis in axes), *settings]:
        if full_name(key) in _BUDGET_KNOBS:
            raise InputError(
                f"{key}: is found from --epsilon and --delta in a private sweep. Leave it out of --over and --set."
            )
    if conditions.held_out or conditions.seeds != 1:
        raise InputError(
            f"seeds={conditions.seeds}, held_out={conditions.held_out}: a private sweep returns one model and always "
            "chooses on held-out examples. Leave out --seeds and --held-out."
        )
    if conditions.jobs != 1:
        raise InputError(
            f"jobs={conditions.jobs}: a private sweep trains its trials one after another. Leave out --jobs."
        )


def _charge(plan: SelectionPlan, conditions: Conditions, run: str) -> None:
    """Takes the whole cost at once: an entry that closed after the last trial would tell how long they took."""
    if conditions.account is None:
        return
    event = plan.event()
    reservation = conditions.account.reserve(lambda _: event, 1, run=run, neighbours=plan.neighbours, unit=plan.unit)
    reservation.before_noise(0)
    reservation.commit(1)


def _released(trained: Trained) -> nn.Module:
    """The model, with the preparations before it where there are any."""
    return nn.Sequential(trained.transform, trained.model) if len(trained.transform) else trained.model


def _record(
    folder: RunFolder,
    configuration: Configuration,
    plan: SelectionPlan,
    winner: Winner,
    accuracy: float,
    chosen: Mapping[str, str],
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """What run.json holds; no seconds, as everywhere here."""
    chosen_plan = plan.plans[winner.candidate]
    return {
        "name": folder.path.name,
        "created": facts["date"],
        "command": facts["command"],
        "dataset": configuration.dataset,
        "model": type(winner.trained.model).__name__,
        "plan": {
            **chosen_plan.to_dict(),
            "algorithm": "DP-SGD, chosen by a private selection",
            "accountant": ACCOUNTANT,
            "optimizer": configuration.optimizer,
            "learning_rate": configuration.learning_rate,
        },
        "chosen": dict(chosen),
        "statement": plan.statement(winner.candidate).to_dict(),
        "epsilon_by_accountant": {ACCOUNTANT: plan.epsilon()},
        "versions": facts["versions"],
        "hardware": facts["hardware"],
        "seeds": [0],
        "metrics": {"test_accuracy": accuracy, "test_accuracy_std": 0.0, "seconds": None},
        "status": "finished",
        "steps_done": chosen_plan.steps,
    }


def _silent(model: int, step: int, steps: int, epsilon: float | None, doing: str) -> None:
    """No progress: whoever counts trials knows more than the guarantee covers."""
    del model, step, steps, epsilon, doing
