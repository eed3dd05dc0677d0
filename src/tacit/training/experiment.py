"""One data set, one way to train, one or several models: an experiment and the record that it leaves."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from dp_accounting import ComposedDpEvent
from torch import nn

from tacit import models
from tacit.accounting import ACCOUNTANTS
from tacit.accounting.groups import for_unit
from tacit.core.errors import TacitError
from tacit.core.privacy import Statement
from tacit.core.randomness import Randomness
from tacit.core.validation import check_count
from tacit.datasets import DataSet
from tacit.ledger import Account
from tacit.plan import DPSGD
from tacit.training.epsilon_curve import EpsilonCurve
from tacit.training.evaluation import evaluate, loss_for
from tacit.training.execution import Execution
from tacit.training.fitting import FitResult, TrainingInterrupted, fit
from tacit.training.optimizers import make_optimizer, make_schedule
from tacit.training.position import event_of_stretches
from tacit.training.private import Private
from tacit.training.resume import Checkpoint
from tacit.training.run_folder import RunFolder, command_line, hardware, now, versions
from tacit.training.settings import Settings
from tacit.training.tally import Tally
from tacit.training.threads import threads_for

_POINTS = 20
_LOOKING_SHARE = 0.1  # points of the history are passed over where testing took more of the time than this

Progress = Callable[[int, int, float], None]
"""Called after every step with the model's number, the steps done and epsilon so far."""

_TABLE = (
    "it holds for the rows dealt to training, whose number is taken as public, as is their dealing by place; rows for "
    "testing are not protected"
)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What to train, and where the result goes.

    Attributes:
        dataset, settings: what and how.
        plan: the guarantee of each model.
        folder: where the record goes.
        seeds: how many independent models are trained; each of them spends.
        account: where the budget comes from.
        execution, device: where and how fast.
        unsafe_seed: fixes noise and sampling for debugging, which voids the guarantee.
        fast_randomness: draws noise from a generator that is not cryptographic, see `Randomness`; statements say so.
        checkpoint: where the models are saved while they train, each in a folder of its own, to go on after a crash.
        canaries: what the record says of canaries that stand in the places of examples; see `tacit.auditing.canaries`.
        private_files: kept in the run's folder by these names, readable by its owner alone.
    """

    dataset: DataSet
    settings: Settings
    plan: DPSGD
    folder: RunFolder
    seeds: int = 1
    account: Account | None = None
    execution: Execution = dataclasses.field(default_factory=Execution)
    device: torch.device = dataclasses.field(default_factory=lambda: torch.device("cpu"))
    unsafe_seed: int | None = None
    fast_randomness: bool = False
    checkpoint: Checkpoint | None = None
    canaries: Mapping[str, Any] | None = None
    private_files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        check_count("seeds", self.seeds)

    def run(self, progress: Progress) -> dict[str, Any]:
        """Trains every model and writes the run folder; returns the run's record.

        The folder holds the first model. The plan's guarantee is for one model; a caveat states what releasing all of
        them costs. On Ctrl-C and on errors the folder says where the run stopped and what may have been drawn, and the
        ledger keeps what was spent. A run that is refused before it draws anything leaves the folder as it was.

        Raises:
            BudgetExceededError: the account does not hold all models; nothing was spent.
        """
        if self.account is not None and not self._resumes:
            everything = ComposedDpEvent([self.plan.event()] * self.seeds)
            try:
                self.account.require(everything, neighbours=self.plan.neighbours, unit=self.plan.unit)
            except TacitError:
                self.folder.remove_if_empty()
                raise
        curve = EpsilonCurve(self.plan, _POINTS)
        tally = Tally(self.plan, past_unknown=self._resumes and self.account is None)
        scores: list[float] = []
        started = time.perf_counter()
        try:
            for seed in range(self.seeds):
                result = self._train(seed, curve, progress, tally)
                tally.finished.append(result)
                scores.append(evaluate(result.model, self.dataset.test, self.dataset.task))
                self.folder.append_history(self._point(seed, self.plan.steps, result.statement.epsilon, scores[-1]))
        except BaseException as error:
            if tally.went_on or isinstance(error, TrainingInterrupted):
                status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
                model = error.result.model if isinstance(error, TrainingInterrupted) else None
                self._write(status, tally, scores, time.perf_counter() - started, model)
            else:
                self.folder.remove_if_empty()
            raise
        return self._write("finished", tally, scores, time.perf_counter() - started)

    @property
    def _resumes(self) -> bool:
        """Whether some of the budget may be reserved already; every model then asks for what it lacks."""
        return self.checkpoint is not None and self.checkpoint.resume

    def _train(self, seed: int, curve: EpsilonCurve, progress: Progress, tally: Tally) -> FitResult:
        dataset, settings, plan = self.dataset, self.settings, self.plan
        torch.manual_seed(seed)  # initial weights; noise, sampling and dropout have a source of their own
        model = models.build(settings.model, dataset.input_shape, dataset.classes, columns=dataset.columns)
        model.to(self.device)
        _put_channels_last(model)
        bound = plan.clipping.bind({name: p.numel() for name, p in model.named_parameters()}).total
        noise_scale = plan.noise_multiplier * bound / plan.expected_batch_size
        optimizer = make_optimizer(
            settings.optimizer, model.parameters(), settings.learning_rate, noise_scale=noise_scale
        )
        due = {max(1, round(plan.steps * k / _POINTS)) for k in range(1, _POINTS)}
        started, looking = time.perf_counter(), 0.0

        def after_step(step: int, current: nn.Module) -> None:
            nonlocal looking
            epsilon = curve.at(step, tally.latest)
            progress(seed, step, epsilon)
            instant = time.perf_counter()
            if step in due and looking <= _LOOKING_SHARE * (instant - started):
                score = evaluate(current, dataset.test, dataset.task)
                self.folder.append_history(self._point(seed, step, epsilon, score))
                looking += time.perf_counter() - instant

        def opened(private: Private) -> None:
            if seed == 0:
                self._keep_private_files()
            tally.open(private)

        with threads_for(model, plan.expected_batch_size):
            return fit(
                model,
                loss_for(dataset.task),
                dataset.train,
                plan,
                optimizer=optimizer,
                scheduler=make_schedule(settings.schedule, optimizer, plan.steps),
                average_decay=settings.average,
                account=self.account,
                run=f"{self.folder.path.name}/{seed}",
                randomness=self._randomness(seed),
                execution=self.execution,
                callbacks=[after_step],
                checkpoint=None if self.checkpoint is None else self.checkpoint.part(str(seed)),
                opened=opened,
            )

    def _keep_private_files(self) -> None:
        """Before the first step, lest a kill lose them. Those that a run was started with stay when it goes on."""
        for name, content in self.private_files.items():
            if not (self._resumes and (self.folder.path / name).exists()):
                self.folder.write_private(name, content)

    def _randomness(self, seed: int) -> Randomness:
        unsafe_seed = None if self.unsafe_seed is None else self.unsafe_seed + seed
        return Randomness(unsafe_seed=unsafe_seed, fast=self.fast_randomness)

    def _point(self, seed: int, step: int, epsilon: float, score: float) -> dict[str, Any]:
        return {"seed": seed, "step": step, "epsilon": epsilon, self.metric: score}

    @property
    def metric(self) -> str:
        """The name of the figure that tells how good a model is."""
        return "test_accuracy" if self.dataset.task == "classification" else "test_mse"

    def _write(
        self, status: str, tally: Tally, scores: list[float], seconds: float, stopped: nn.Module | None = None
    ) -> dict[str, Any]:
        """Leaves the record, and the first model: if none finished, the one that was ``stopped`` in order, or none."""
        results = tally.results()
        record = {
            "name": self.folder.path.name,
            "created": now(),
            "command": command_line(),
            "dataset": self.dataset.name,
            "model": self.settings.model,
            "plan": {**self.plan.to_dict(), **self._training_facts(results)},
            "statement": self._statement(results).to_dict(),
            "epsilon_by_accountant": self._by_accountant(results),
            "versions": versions(),
            "hardware": hardware(self.device),
            "seeds": list(range(self.seeds)),
            "metrics": {
                self.metric: statistics.fmean(scores) if scores else None,
                f"{self.metric}_std": statistics.stdev(scores) if len(scores) > 1 else 0.0 if scores else None,
                "seconds": seconds,
            },
            # Of rows that nothing protects, where a table was divided: for whoever holds it.
            "private": [self.metric, f"{self.metric}_std"] if self.dataset.columns else [],
            "status": status,
            "steps_done": tally.steps_done,
        }
        self.folder.replace_run(record, tally.finished[0].model if tally.finished else stopped)
        return record

    def _training_facts(self, results: list[FitResult]) -> dict[str, Any]:
        settings = self.settings
        average = "none" if settings.average is None else f"exponential, decay {settings.average:g}"
        return {
            "optimizer": settings.optimizer,
            "learning_rate": settings.learning_rate,
            "schedule": settings.schedule,
            "ema": average,
            "engine": results[0].engine,
            **({} if self.canaries is None else {"canaries": dict(self.canaries)}),
        }

    def _statement(self, results: list[FitResult]) -> Statement:
        found = self._of_models(results)
        return dataclasses.replace(found, caveats=(*found.caveats, _TABLE)) if self.dataset.columns else found

    def _of_models(self, results: list[FitResult]) -> Statement:
        first = results[0].statement
        if len(results) == 1:
            return first
        everything = ComposedDpEvent([event_of_stretches(self.plan, result.stretches) for result in results])
        together = self.plan.unit_accountant().epsilon(everything, self.plan.delta, self.plan.neighbours)
        caveat = (
            f"{len(results)} such models were trained on the same data, and releasing or choosing among all of them "
            f"has epsilon {together:.4g}"
        )
        return dataclasses.replace(first, caveats=(*first.caveats, caveat))

    def _by_accountant(self, results: list[FitResult]) -> dict[str, float]:
        event, plan = event_of_stretches(self.plan, results[0].stretches), self.plan
        return {
            name: for_unit(accountant, plan.unit.max_examples).epsilon(event, plan.delta, plan.neighbours)
            for name, accountant in ACCOUNTANTS.items()
            if accountant.supports(event, plan.neighbours)
        }


def _put_channels_last(model: nn.Module) -> None:
    """Lays out convolutions for outputs with channels last, which CPU pooling is written for."""
    for parameter in model.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.to(memory_format=torch.channels_last)
