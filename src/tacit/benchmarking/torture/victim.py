"""The small private run that is killed, and what is seen of its noise."""

import dataclasses
import functools
import mmap
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.clipping import Flat
from tacit.core.errors import LedgerError
from tacit.core.privacy import Budget
from tacit.core.randomness import Randomness
from tacit.ledger import Account, Entry, Ledger
from tacit.plan import DPSGD
from tacit.training import Checkpoint, Execution, fit

RECORDS, CLIP, NOISE = 8, 0.5, 4.0
_FEATURES, _CLASSES = 100, 10
NUMBERS = (_FEATURES + 1) * _CLASSES
STEPS = 66
AHEAD = 2  # how many steps the ledger's mark of so long a run is written ahead: it must be more than one
DIVISOR = RECORDS // 2
_EVERY, _SEED = 3, 7
_PLANS_AFFORDED = 12  # by a run that draws again; far more than any trial needs
KINDS = ("seeded", "secret", "redrawn")


class Observed:
    """The noisy gradients that a trial's processes left, in memory that outlives them.

    A record counts when it is whole: a process may be killed while it writes one.
    """

    _HEAD = struct.Struct("<qq")
    _RECORD = struct.Struct(f"<q{8 * NUMBERS}s")
    _MOST = 2000

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self._place(self._MOST))  # shared with forked processes

    def clear(self) -> None:
        """Forgets everything, for the next trial."""
        self._HEAD.pack_into(self._memory, 0, 0, 0)

    def add(self, step: int, gradient: bytes) -> None:
        """Adds what a step left."""
        count, noises = self._HEAD.unpack_from(self._memory)
        self._RECORD.pack_into(self._memory, self._place(count), step, gradient)
        self._HEAD.pack_into(self._memory, 0, count + 1, noises)

    def add_noise(self) -> None:
        """Counts noise that was drawn, whether or not its gradient is ever seen."""
        count, noises = self._HEAD.unpack_from(self._memory)
        self._HEAD.pack_into(self._memory, 0, count, noises + 1)

    @property
    def noises(self) -> int:
        """How often noise was drawn, where somebody counted."""
        return int(self._HEAD.unpack_from(self._memory)[1])

    def __len__(self) -> int:
        return int(self._HEAD.unpack_from(self._memory)[0])

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        for number in range(len(self)):
            yield self._RECORD.unpack_from(self._memory, self._place(number))

    def _place(self, number: int) -> int:
        return self._HEAD.size + number * self._RECORD.size


@dataclasses.dataclass(frozen=True)
class Trial:
    """One run that is killed and resumed.

    Attributes:
        folder: its own, with ledger and checkpoint.
        kind: one of `KINDS`.
        observed: what its processes left.
    """

    folder: Path
    kind: str
    observed: Observed

    @property
    def checkpoint(self) -> Path:
        """Where the run saves itself."""
        return self.folder / "checkpoint"

    @property
    def key(self) -> Path:
        """Where its secret key is, while it has one."""
        return self.checkpoint / "key"

    @property
    def ledger(self) -> Path:
        """Where its ledger is."""
        return self.folder / "ledger.db"

    def account(self) -> Account:
        """The run's account; it holds what the plan costs, or several times as much where steps are drawn again."""
        epsilon = epsilon_of(STEPS * (_PLANS_AFFORDED if self.kind == "redrawn" else 1))
        return Ledger.create(self.ledger, dataset="d", budget=Budget(epsilon, 1e-5)).account("d")

    def entries(self) -> list[Entry]:
        """What the ledger says, read from a copy, so that the next process finds the files as the last one left them.

        Nothing where the process died before the ledger was whole.
        """
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / self.ledger.name
            for suffix in ("", "-wal"):
                if (source := Path(f"{self.ledger}{suffix}")).exists():
                    shutil.copyfile(source, f"{copy}{suffix}")
            try:
                accounts = Ledger.open(copy).accounts()
            except LedgerError:
                return []
            return [entry for account in accounts for entry in account.entries()]


def plan(steps: int = STEPS) -> DPSGD:
    """A small plan."""
    return DPSGD(
        expected_batch_size=DIVISOR,
        examples=RECORDS,
        steps=steps,
        clipping=Flat(CLIP),
        delta=1e-5,
        noise_multiplier=NOISE,
    )


@functools.cache
def epsilon_of(steps: int) -> float:
    """What so many steps of the plan cost."""
    return plan(steps).epsilon()


def _loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs), targets, reduction="none")


def train(trial: Trial | None, *, changed: bool = False, engine: str = "auto") -> bytes:
    """Trains, and resumes if there is something to resume; returns the weights.

    Args:
        trial: None for the run that nothing interrupts, with neither ledger nor checkpoint.
        changed: with one record changed.
        engine: another one rounds otherwise.
    """
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(RECORDS, _FEATURES, generator=generator)
    targets = torch.randint(0, _CLASSES, (RECORDS,), generator=generator)
    inputs[0] += changed
    torch.manual_seed(2)
    model = nn.Linear(_FEATURES, _CLASSES)
    secret = trial is not None and trial.kind == "secret"

    def observe(step: int, current: nn.Module) -> None:
        if trial is not None:
            gradient = torch.cat([p.grad.flatten() for p in current.parameters() if p.grad is not None]).double()
            trial.observed.add(step, gradient.numpy().tobytes())

    result = fit(
        model,
        _loss,
        (inputs, targets),
        plan(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        average_decay=0.9,
        account=None if trial is None else trial.account(),
        run="torture",
        randomness=None if secret else Randomness(unsafe_seed=_SEED),
        execution=Execution(preflight=False, compile=False, engine=engine),
        callbacks=[observe],
        checkpoint=None
        if trial is None
        else Checkpoint(trial.checkpoint, every=_EVERY, resume=True, redraw=trial.kind == "redrawn"),
    )
    return torch.cat([p.detach().flatten() for p in result.model.parameters()]).numpy().tobytes()
