"""Trains and tests one configuration over several seeds."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from tacit.core.randomness import Randomness
from tacit.datasets import DataSet, Split
from tacit.plan import DPSGD
from tacit.recipes.conditions import FEATURES, PUBLIC, TRAINING, Conditions, Progress
from tacit.recipes.holding_out import hold_out
from tacit.recipes.interrupting import seed_by_seed
from tacit.recipes.phases import Phase, phases
from tacit.recipes.plain import fit_plainly, prepare_plainly
from tacit.recipes.recipe import Configuration
from tacit.training.evaluation import evaluate
from tacit.training.fitting import FitResult, fit
from tacit.training.optimizers import make_optimizer
from tacit.training.preparation import apply, prepare
from tacit.training.threads import threads_for

Curve = Mapping[int, float | None]
"""Epsilon at some steps; None without a guarantee."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What several seeds of one configuration gave; accuracies are fractions, of the last iterate or its average.

    Without a plan there is no guarantee. ``seconds`` are those of each seed, ``lasted`` all that had passed when the
    last of them ended.
    """

    plan: DPSGD | None
    steps: int
    accuracies: list[float]
    seconds: list[float]
    lasted: float
    history: list[dict[str, Any]]
    engine: str
    measured_on: str
    public_start: dict[str, Any] | None

    @classmethod
    def joined(cls, seeds: "Sequence[Outcome]") -> "Outcome":
        """What one configuration gave with each of several seeds, in their order."""
        ordered = sorted(seeds, key=lambda outcome: int(outcome.history[-1]["seed"]))
        return dataclasses.replace(
            ordered[-1],
            accuracies=[accuracy for outcome in ordered for accuracy in outcome.accuracies],
            seconds=[seconds for outcome in ordered for seconds in outcome.seconds],
            lasted=max(outcome.lasted for outcome in ordered),
            history=[point for outcome in ordered for point in outcome.history],
        )

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return statistics.fmean(self.accuracies)

    @property
    def std(self) -> float | None:
        """Over the seeds, of a sample; None for a single one."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else None


@dataclasses.dataclass(frozen=True)
class Trained:
    """One model, with the public map that private preparations put before it, and what was seen on the way.

    ``compiled`` says whether a program came of its step, which is kept on disk.
    """

    model: nn.Module
    transform: nn.Sequential
    points: list[dict[str, Any]]
    engine: str
    compiled: bool = False

    def seen(self, split: Split) -> Split:
        """Examples as the model sees them."""
        return _through(self.transform, split)


def measure(
    configuration: Configuration, conditions: Conditions, progress: Progress, *, first_seed: int = 0
) -> Outcome:
    """Trains and tests one configuration over all seeds; each seed takes noise of its own from the system.

    Seeds are counted from ``first_seed``, so that several processes may share them.

    Raises:
        InputError: an account for a configuration without privacy, which none pays for, among others.
        SeedsInterrupted: Ctrl-C once a seed had ended; with the outcome of those that had.
    """
    began = time.perf_counter()
    if not configuration.private:
        conditions.refuse_account()
    start = configuration.make_start(conditions.device, lambda done, steps: progress(0, done, steps, 0.0, PUBLIC))
    data = configuration.load(conditions.device, lambda done, inputs: progress(0, done, inputs, 0.0, FEATURES))
    if conditions.held_out:
        data = hold_out(data)
    examples = len(data.train)
    plan, steps = configuration.plan(examples) if configuration.private else None, configuration.steps_for(examples)
    curve = _curve(plan, steps, conditions.points)
    measured_on = f"{len(data.test)} held-out training examples" if conditions.held_out else "test set"
    epochs = steps * configuration.batch_size / examples

    def train(seed: int) -> Outcome:
        nonlocal conditions
        started = time.perf_counter()
        trained = train_model(configuration, data, plan, seed, conditions, curve, progress)
        accuracy = evaluate(trained.model, trained.seen(data.test), data.task)
        ended = time.perf_counter()
        points = [*trained.points, _point(seed, steps, epochs, curve, accuracy)]
        if trained.compiled:  # the next seed has the program in seconds, and need not wait until it pays
            conditions = _compiling_at_once(conditions)
        engine, seconds, lasted = trained.engine, ended - started, ended - began
        return Outcome(plan, steps, [accuracy], [seconds], lasted, points, engine, measured_on, start)

    return seed_by_seed(range(first_seed, first_seed + conditions.seeds), train, Outcome.joined)


def train_model(
    configuration: Configuration,
    data: DataSet,
    plan: DPSGD | None,
    seed: int,
    conditions: Conditions,
    curve: Curve,
    progress: Progress,
) -> Trained:
    """Trains one model on ``data.train``; accuracies on the way are on ``data.test``, at the steps of the curve.

    Args:
        configuration, data, plan: what, on what, and with which guarantee; without a plan there is none.
        seed: of the initial weights; noise, sampling and augmentation have a secret source of their own.
        conditions: how.
        curve: epsilon at the steps that are looked at.
        progress: told of these steps.
    """
    randomness, run, inputs = Randomness(), f"{configuration.dataset}, seed {seed}", data.train.inputs
    if plan is None:
        transform = prepare_plainly(configuration.preparations_for(len(data.train)), inputs)
    else:
        transform = prepare(plan, inputs, account=conditions.account, run=run, randomness=randomness)
    train, test = _through(transform, data.train), _through(transform, data.test)
    torch.manual_seed(seed)
    model = configuration.model(tuple(train.inputs.shape[1:]), data.classes).to(conditions.device)
    points: list[dict[str, Any]] = []
    steps = configuration.steps_for(len(train))

    def look(step: int) -> None:
        if step in curve:
            progress(seed, step, steps, curve[step], TRAINING)
            if step < steps:
                accuracy = evaluate(model, test, data.task)
                points.append(_point(seed, step, step * configuration.batch_size / len(train), curve, accuracy))

    if plan is None:
        return Trained(model, transform, points, fit_plainly(configuration, model, train, seed, look))
    ended = _fit(configuration, model, train, plan, conditions, randomness, run, look)
    return Trained(model, transform, points, ended.engine, compiled=ended.compile_seconds > 0)


def _fit(
    configuration: Configuration,
    model: nn.Module,
    train: Split,
    plan: DPSGD,
    conditions: Conditions,
    randomness: Randomness,
    run: str,
    look: Callable[[int], None],
) -> FitResult:
    """All phases of the plan, and what the last one left behind."""
    for phase in phases(configuration, model, train, plan, randomness, conditions.execution):

        def after_step(step: int, _: nn.Module, before: int = phase.steps_before) -> None:
            look(step + before)

        optimizer = _optimizer(configuration, phase)
        with threads_for(phase.network, configuration.batch_size):
            ended = fit(
                phase.network,
                configuration.loss,
                phase.records,
                phase.plan,
                optimizer=optimizer,
                scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, phase.schedule),
                average_decay=configuration.average,
                account=conditions.account,
                run=run,
                randomness=randomness,
                execution=phase.execution,
                callbacks=[after_step],
            )
    return ended


def _compiling_at_once(conditions: Conditions) -> Conditions:
    return dataclasses.replace(conditions, execution=dataclasses.replace(conditions.execution, compile=True))


def _through(transform: nn.Sequential, split: Split) -> Split:
    return Split(apply(transform, split.inputs), split.targets) if len(transform) else split


def _optimizer(configuration: Configuration, phase: Phase) -> torch.optim.Optimizer:
    plan = phase.plan
    bound = plan.clipping.bind({name: p.numel() for name, p in phase.network.named_parameters()}).total
    return make_optimizer(
        configuration.optimizer,
        phase.network.parameters(),
        phase.learning_rate,
        noise_scale=plan.noise_multiplier * bound / plan.expected_batch_size,
    )


def _curve(plan: DPSGD | None, steps: int, points: int) -> dict[int, float | None]:
    """Epsilon at the steps that are looked at."""
    looked_at = sorted({max(1, round(steps * k / points)) for k in range(1, points + 1)})
    return {step: None if plan is None else plan.epsilon(step) for step in looked_at}


def _point(seed: int, step: int, epochs: float, curve: Curve, accuracy: float) -> dict[str, Any]:
    return {"seed": seed, "step": step, "epochs": epochs, "epsilon": curve[step], "accuracy": accuracy}
