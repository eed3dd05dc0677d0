"""Runs killed with SIGKILL, at every boundary and at random moments, and resumed: what became of them.

``python -m tacit.benchmarking.torture --kills 1000 --out results/ledger/torture.json``

Every trial is a small private run with a ledger and a checkpoint. It is killed a few times, resumed after each, and
left to end. A third of them go on under a fixed seed, so that their weights can be compared with an uninterrupted
run's; a third under secret keys; and from a third the key is taken away after the first kill, so that they must draw
again. The others are also tried with a changed record once, and must refuse it.

Nothing in the library knows of it: a boundary is a call or return of one of its functions, seen by Python's profiler in
the process to be killed. The noise is observed from outside, in the noisy gradients that every step leaves. Two
gradients of one step must be the same to the last bit (a replay), or so far apart that they cannot hold the same noise:
two sums of n clipped gradients differ by at most 2 n C, and independent noise by about sigma C sqrt(2 d), far more.
"""

import argparse
import contextlib
import dataclasses
import functools
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.benchmarking.results import check_writable, write_result
from tacit.clipping import Flat
from tacit.core.errors import TacitError
from tacit.core.privacy import Budget
from tacit.core.randomness import Randomness
from tacit.ledger import Account, EntryState, Ledger
from tacit.plan import DPSGD
from tacit.training import Checkpoint, Execution, fit

_FEATURES, _CLASSES, _RECORDS, _CLIP, _NOISE = 100, 10, 8, 0.5, 4.0
_NUMBERS = (_FEATURES + 1) * _CLASSES
_SUMS_APART = 2 * _RECORDS * _CLIP
_NOISE_APART = _NOISE * _CLIP * math.sqrt(2 * _NUMBERS)
_STEPS, _EVERY, _SEED = 12, 3, 7
_KILLS_A_RUN = 6
_REDRAWS = 2 * _KILLS_A_RUN  # the budget of a run that draws again holds so many
_LONGEST_TRIAL = 30  # restarts

BOUNDARIES = {
    "before the key is written": ("Store.write_key", "call"),
    "key written, no state": ("Store.write_key", "return"),
    "before reserve": ("Account.reserve", "call"),
    "reserved, no noise": ("Account.reserve", "return"),
    "sum seen, not marked": ("Witness.__call__", "return"),
    "marked, no noise": ("Reservation.before_noise", "return"),
    "after the noise": ("StepNoise.apply_", "return"),
    "after the update": ("Update.__call__", "return"),
    "in the state, before it is written": ("Store.write", "call"),
    "in the state, written and not renamed": ("_flush", "call"),
    "in the state, renamed": ("Store._replace", "return"),
    "after the state": ("Store.write", "return"),
    "before the commit": ("Reservation.commit", "call"),
    "in the commit": ("LedgerReservation._append", "call"),
    "after the commit": ("LedgerReservation._close", "return"),
    "before the key is destroyed": ("Store.destroy_key", "call"),
    "in the key's destruction": ("_overwrite_and_unlink", "call"),
    "after the key": ("_overwrite_and_unlink", "return"),
}
KINDS = ("seeded", "secret", "redrawn")


@dataclasses.dataclass(frozen=True)
class Trial:
    """One run that is killed and resumed.

    Attributes:
        folder: its own, with ledger, checkpoint and what was observed.
        kind: one of `KINDS`.
    """

    folder: Path
    kind: str

    @property
    def checkpoint(self) -> Path:
        """Where the run saves itself."""
        return self.folder / "checkpoint"

    def account(self) -> Account:
        """The run's account; it holds what the plan costs, or several times as much where steps are drawn again."""
        epsilon = _epsilon(_STEPS * (_REDRAWS if self.kind == "redrawn" else 1))
        return Ledger.create(self.folder / "ledger.db", dataset="d", budget=Budget(epsilon, 1e-5)).account("d")


def plan(steps: int = _STEPS) -> DPSGD:
    """A small plan."""
    return DPSGD(
        expected_batch_size=_RECORDS // 2,
        examples=_RECORDS,
        steps=steps,
        clipping=Flat(_CLIP),
        delta=1e-5,
        noise_multiplier=_NOISE,
    )


@functools.cache
def _epsilon(steps: int) -> float:
    return plan(steps).epsilon()


def _loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs), targets, reduction="none")


def _work(trial: Trial | None, *, changed: bool = False) -> Tensor:
    """Trains, and resumes if there is something to resume; returns the weights."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(_RECORDS, _FEATURES, generator=generator)
    targets = torch.randint(0, _CLASSES, (_RECORDS,), generator=generator)
    inputs[0] += changed
    torch.manual_seed(2)
    model = nn.Linear(_FEATURES, _CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    secret = trial is not None and trial.kind == "secret"

    def observe(step: int, current: nn.Module) -> None:
        if trial is not None:
            gradient = torch.cat([p.grad.flatten() for p in current.parameters() if p.grad is not None]).double()
            record = np.int64(step).tobytes() + gradient.numpy().tobytes()
            with (trial.folder / "observed").open("ab") as file:
                file.write(record)

    result = fit(
        model,
        _loss,
        (inputs, targets),
        plan(),
        optimizer=optimizer,
        average_decay=0.9,
        account=None if trial is None else trial.account(),
        run="torture",
        randomness=None if secret else Randomness(unsafe_seed=_SEED),
        execution=Execution(preflight=False, compile=False),
        callbacks=[observe],
        checkpoint=None
        if trial is None
        else Checkpoint(trial.checkpoint, every=_EVERY, resume=True, redraw=trial.kind == "redrawn"),
    )
    return torch.cat([p.detach().flatten() for p in result.model.parameters()])


def _child(trial: Trial, boundary: str | None, nth: int, *, changed: bool = False) -> int:
    """Forks a process that works, and kills itself at the n-th arrival at a boundary; its process number."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        if boundary is not None:
            _kill_at(*BOUNDARIES[boundary], nth)
        weights = _work(trial, changed=changed)
        (trial.folder / "weights").write_bytes(weights.numpy().tobytes())
        status = 0
    except TacitError as error:
        (trial.folder / "refusal").write_text(f"{error}\n")
        status = 2
    except BaseException as error:
        (trial.folder / "failure").write_text(f"{type(error).__name__}: {error}\n")
    finally:
        os._exit(status)


def _kill_at(qualname: str, kind: str, nth: int) -> None:
    left = nth

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal left
        if event == kind and frame.f_code.co_qualname == qualname:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(watch)


class Torture:
    """Kills runs, and counts what came of it.

    Args:
        folder: for all trials.
        kills: how many there shall be.
        seed: of the choice of moments.
    """

    def __init__(self, folder: Path, kills: int, seed: int) -> None:
        self._folder, self._wanted, self._choice = folder, kills, random.Random(seed)
        self._reference = _work(None)
        for runs in (1, _REDRAWS):
            _epsilon(runs * _STEPS)  # once, and not in every process
        started = time.perf_counter()
        self._run(Trial(self._new_folder("timing"), "secret"), None, 1)
        self._usual_seconds = time.perf_counter() - started
        self.kills: Counter[str] = Counter()
        self.trials: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.replayed_steps = self.redrawn_steps = self.refused_changes = 0

    def run(self) -> dict[str, Any]:
        """All trials; the figures."""
        started = time.perf_counter()
        number = 0
        while self.kills.total() < self._wanted:
            kind = KINDS[number % len(KINDS)]
            boundaries = list(BOUNDARIES)
            self._trial(Trial(self._new_folder(str(number)), kind), boundaries[number // len(KINDS) % len(boundaries)])
            number += 1
        return {
            "kills": self.kills.total(),
            "kills_by_boundary": dict(sorted(self.kills.items())),
            "runs": dict(self.trials),
            "steps_replayed": self.replayed_steps,
            "steps_drawn_again": self.redrawn_steps,
            "changed_data_refused": self.refused_changes,
            "wrong": self.wrong,
            "seconds": time.perf_counter() - started,
        }

    def _new_folder(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        return folder

    def _trial(self, trial: Trial, first_boundary: str) -> None:
        others = self._choice.choices([None, *BOUNDARIES], k=_KILLS_A_RUN - 1)
        moments: list[str | None] = [first_boundary, *others]
        for attempt in range(_LONGEST_TRIAL):
            moment = moments[attempt] if attempt < len(moments) else "none"
            status = self._attempt(trial, moment)
            if status == 0:
                break
            if status != -signal.SIGKILL:
                self.wrong.append(f"{trial.kind}: status {status} after {moment}: {_said(trial)}")
                return
            if attempt == 0:
                self._interfere(trial)
        else:
            self.wrong.append(f"{trial.kind}: did not end")
            return
        self.trials[trial.kind] += 1
        self.wrong += [f"{trial.kind}, first killed {first_boundary}: {what}" for what in self._check(trial)]

    def _attempt(self, trial: Trial, moment: str | None) -> int:
        """One process: killed at a boundary, at a random time (None), or left alone ("none")."""
        if moment == "none":
            return self._run(trial, None, 1)
        nth = self._choice.choice((1, 1, 2, 3, 5))
        seconds = None if moment is not None else self._choice.uniform(0, self._usual_seconds)
        status = self._run(trial, moment, nth, seconds)
        if status == -signal.SIGKILL:
            self.kills[moment or "at a random time"] += 1
        return status

    def _run(
        self, trial: Trial, boundary: str | None, nth: int, seconds: float | None = None, *, changed: bool = False
    ) -> int:
        pid = _child(trial, boundary, nth, changed=changed)
        if seconds is not None:
            time.sleep(seconds)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def _interfere(self, trial: Trial) -> None:
        """Takes the key away, or tries to go on with other data, which must be refused and draw nothing."""
        if trial.kind == "redrawn":
            (trial.checkpoint / "key").unlink(missing_ok=True)
        elif (trial.checkpoint / "key").exists() and list(trial.checkpoint.glob("state-*.safetensors")):
            seen, spent = _observed(trial), _charges(trial)
            status = self._run(trial, None, 1, changed=True)
            if status == 2 and _observed(trial) == seen and _charges(trial) == spent:
                self.refused_changes += 1
            else:
                self.wrong.append(f"{trial.kind}: went on with changed data (status {status})")

    def _check(self, trial: Trial) -> Iterator[str]:
        entries = trial.account().entries()
        charged = sum(entry.steps_charged for entry in entries)
        if any(entry.state is EntryState.RESERVED for entry in entries):
            yield "a reservation is still open"
        if (trial.checkpoint / "key").exists():
            yield "the key is still there"
        budget = trial.account().budget
        if budget is not None and trial.account().spent() > budget.epsilon:
            yield "the budget is exceeded"
        observed = _observed(trial)
        drawn = {(step, gradient) for step, gradient in observed}
        if charged < len(drawn):
            yield f"{len(drawn)} noisy gradients were seen, and {charged} steps are charged"
        yield from _same_or_far_apart(drawn)
        if trial.kind != "redrawn":
            self.replayed_steps += len(observed) - len(drawn)
            if charged != _STEPS:
                yield f"{charged} steps are charged, and the run has {_STEPS}"
        else:
            self.redrawn_steps += charged - _STEPS
            unseen = len(entries) - 1  # each stretch may end between the mark of a step and our look at it
            if charged - len(drawn) > unseen:
                yield f"{charged} steps are charged, and {len(drawn)} were drawn in {len(entries)} stretches"
        if trial.kind == "seeded" and (trial.folder / "weights").read_bytes() != self._reference.numpy().tobytes():
            yield "the weights are not those of the uninterrupted run"


def _observed(trial: Trial) -> list[tuple[int, bytes]]:
    path, size = trial.folder / "observed", 8 + 8 * _NUMBERS
    content = path.read_bytes() if path.exists() else b""
    records = [content[start : start + size] for start in range(0, len(content) - size + 1, size)]
    return [(int(np.frombuffer(record[:8], np.int64)[0]), record[8:]) for record in records]


def _same_or_far_apart(drawn: set[tuple[int, bytes]]) -> Iterator[str]:
    by_step: dict[int, list[npt.NDArray[np.float64]]] = {}
    for step, gradient in drawn:
        by_step.setdefault(step, []).append(np.frombuffer(gradient) * (_RECORDS // 2))
    for step, sums in by_step.items():
        for place, one in enumerate(sums):
            for other in sums[:place]:
                if np.linalg.norm(one - other) < (_SUMS_APART + _NOISE_APART) / 2:
                    yield f"step {step}: two different sums have the same noise"


def _charges(trial: Trial) -> list[int]:
    return [entry.steps_drawn for entry in trial.account().entries()]


def _said(trial: Trial) -> str:
    files = [trial.folder / name for name in ("refusal", "failure")]
    return " ".join(path.read_text().strip() for path in files if path.exists())


def main() -> int:
    """The command; 0 where nothing was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the moments, which random times blur anyway")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    check_writable("out", options.out)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        figures = Torture(Path(folder), options.kills, options.seed).run()
    if options.out is not None:
        write_result(figures, options.out)
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    return 1 if figures["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
