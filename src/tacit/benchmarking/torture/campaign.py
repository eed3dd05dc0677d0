"""All trials of one torture, and what came of them."""

import functools
import itertools
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tacit.benchmarking.torture import judging
from tacit.benchmarking.torture.faults import FAULTS, Fault, LyingDisk
from tacit.benchmarking.torture.processes import (
    BOUNDARIES,
    DONE,
    KILLED,
    REFUSED,
    Ended,
    Hooks,
    killed_at,
    run_process,
    whereabouts,
)
from tacit.benchmarking.torture.victim import KINDS, STEPS, Observed, Trial, train

Moment = tuple[str, int] | None
"""The n-th arrival at a boundary; None for a random time."""

_KILLS_A_RUN = 6
_ENOUGH_TO_REFUSE = 10  # runs of a fault of which at least one is refused, but for a chance below 1e-6


class Torture:
    """Kills runs and strikes them with faults, and counts what came of it.

    Args:
        folder: for all trials.
        seed: of the choice of moments.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._choice, self._number = folder, random.Random(seed), itertools.count()
        self._observed, self._reference = Observed(), train(None)
        self.kills: dict[str, Counter[str]] = {"boundaries": Counter(), "random times": Counter()}
        self.faults: dict[str, Counter[str]] = {fault.name: Counter() for fault in FAULTS}
        self.runs: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()
        self.changed_data_refused = 0
        self.wrong: list[str] = []

    def kill_at_boundaries(self, kills: int) -> None:
        """Trials whose first kills are at each boundary in turn, and the later ones at any."""
        firsts, tried = list(itertools.product(BOUNDARIES, KINDS)), 0
        while self.kills["boundaries"].total() < kills:
            first, kind = firsts[tried % len(firsts)]
            boundaries = [first, *self._choice.choices(list(BOUNDARIES), k=_KILLS_A_RUN - 1)]
            self.kill(kind, [(boundary, self._choice.choice((1, 1, 2, 3, 5))) for boundary in boundaries])
            tried += 1
        if tried >= 2 * len(firsts):
            self.wrong += [f"never killed: {name}" for name in BOUNDARIES if not self.kills["boundaries"][name]]

    def kill_at_random_times(self, kills: int) -> None:
        """Trials whose processes are killed anywhere in their lives."""
        for kind in itertools.cycle(KINDS):
            if self.kills["random times"].total() >= kills:
                break
            self.kill(kind, [None] * _KILLS_A_RUN)

    def strike_with_faults(self, runs: int) -> None:
        """So many trials with each fault."""
        for fault in FAULTS:
            kinds = itertools.cycle(kind for kind in KINDS if fault is not LyingDisk or kind != "redrawn")
            came_of_it = self.faults[fault.name]
            while came_of_it.total() < runs:
                self.strike(next(kinds), fault, kills=self._choice.randint(fault.least_kills, 2))
            if fault.must_refuse and runs >= _ENOUGH_TO_REFUSE and not came_of_it["refused"]:
                self.wrong.append(f"{fault.name}: no run was refused")

    def kill(self, kind: str, moments: Iterable[Moment]) -> None:
        """One trial, whose processes are killed one after another and whose last is left alone."""
        trial = self._new_trial(kind)
        for place, moment in enumerate(moments):
            ended = self._killed_process(trial, moment)
            if ended.status != KILLED:
                break
            if place == 0:
                self._note(trial, judging.after_the_first_death(trial))
                self._interfere(trial)
        else:
            ended = run_process(trial)
        self._finish(trial, ended)

    def strike(self, kind: str, fault_type: type[Fault], *, kills: int) -> None:
        """One trial that is struck by a fault after some kills; nothing where it has ended before."""
        trial = self._new_trial(kind)
        fault = fault_type(trial, self._choice)
        for _ in range(kills):
            if self._killed_process(trial, None, fault.hooks()).status != KILLED:
                return
        fault.strike()
        if not fault.is_final:
            self._note(trial, (f"{fault.name}: {what}" for what in judging.after_a_death(trial)))
        drawn, entries = set(trial.observed), trial.entries()
        ended = run_process(trial, prepare=fault.prepare, engine=fault.engine)
        self.faults[fault.name][{DONE: "continued", REFUSED: "refused"}.get(ended.status, "failed")] += 1
        self._note(trial, (f"{fault.name}: {what}" for what in judging.refusal(ended)))
        if fault.forbids_spending and trial.entries() != entries:
            self._note(trial, [f"{fault.name}: was charged all the same"])
        if ended.status == REFUSED and fault.is_final:
            if set(trial.observed) != drawn:
                self._note(trial, [f"{fault.name}: was refused and drew all the same"])
            return
        if ended.status == REFUSED:
            fault.lift()
            self._note(trial, judging.after_a_death(trial))
            ended = run_process(trial)
        self._finish(trial, ended)

    def figures(self) -> dict[str, Any]:
        """Everything that was counted."""
        return {
            "kills": sum(counted.total() for counted in self.kills.values()),
            "kills_by_boundary": dict(sorted(self.kills["boundaries"].items())),
            "kills_at_random_times": dict(sorted(self.kills["random times"].items())),
            "faults": {name: dict(sorted(counted.items())) for name, counted in self.faults.items()},
            "runs": dict(self.runs),
            "steps_replayed": self.steps["replayed"],
            "steps_drawn_again": self.steps["drawn again"],
            "changed_data_refused": self.changed_data_refused,
            "seconds_of_a_life": self._life,
            "wrong": self.wrong,
        }

    @functools.cached_property
    def _life(self) -> float:
        """How many seconds a run takes that nothing interrupts."""
        lives = []
        for _ in range(5):
            trial, started = Trial(self._new_folder(), "secret", Observed()), time.perf_counter()
            run_process(trial)
            lives.append(time.perf_counter() - started)
        return statistics.median(lives)

    def _new_trial(self, kind: str) -> Trial:
        self._observed.clear()
        return Trial(self._new_folder(), kind, self._observed)

    def _new_folder(self) -> Path:
        folder = self._folder / str(next(self._number))
        folder.mkdir()
        return folder

    def _killed_process(self, trial: Trial, moment: Moment, hooks: Hooks | None = None) -> Ended:
        """One process that is killed, unless it ends before."""
        if moment is not None:
            ended = run_process(trial, hooks=killed_at(*moment, trial))
        else:
            ended = run_process(trial, hooks=hooks, seconds=self._choice.uniform(0, self._life))
        if ended.status == KILLED:
            if moment is None:
                self.kills["random times"][whereabouts(trial)] += 1
            else:
                self.kills["boundaries"][moment[0]] += 1
            self._note(trial, judging.after_a_death(trial))
        return ended

    def _interfere(self, trial: Trial) -> None:
        """Takes the key away, or tries to go on with other data, which must be refused and draw nothing."""
        if trial.kind == "redrawn":
            trial.key.unlink(missing_ok=True)
        elif trial.key.exists() and list(trial.checkpoint.glob("state-*.safetensors")):
            seen, entries = len(trial.observed), trial.entries()
            ended = run_process(trial, changed=True)
            if ended.status == REFUSED and len(trial.observed) == seen and trial.entries() == entries:
                self.changed_data_refused += 1
            else:
                self._note(trial, [f"went on with changed data (status {ended.status}) {ended.said}"])

    def _finish(self, trial: Trial, ended: Ended) -> None:
        """Judges a run that should have ended."""
        if ended.status != DONE:
            self._note(trial, [f"status {ended.status}: {ended.said}"])
            return
        self._note(trial, judging.at_the_end(trial, ended.weights, self._reference))
        self.runs[trial.kind] += 1
        if trial.kind == "redrawn":
            self.steps["drawn again"] += sum(entry.steps_charged for entry in trial.entries()) - STEPS
        else:
            self.steps["replayed"] += len(trial.observed) - len(set(trial.observed))

    def _note(self, trial: Trial, found: Iterable[str]) -> None:
        self.wrong += [f"{trial.kind} {trial.folder.name}: {what}" for what in found]
