"""Teachers: one model for each part of the private data, trained together, kept one by one."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tacit.core.errors import InputError
from tacit.core.validation import check_count
from tacit.datasets import Split
from tacit.pate.partition import Indices
from tacit.training.ensemble import Fitting, Progress, Stack

_RETRIES = 2  # with a learning rate that is ten times smaller each


@dataclasses.dataclass(frozen=True)
class TeacherTraining:
    """How teachers are trained.

    Attributes:
        fitting: steps, batches and rate of each.
        at_once: how many are trained together; memory grows with it, and results depend on it by rounding alone.
        seed: of first weights and the order of records.
        folder: where finished teachers are kept, so that a crash costs only those that were in work. Its content is
            private: a folder that is made here is for its owner alone. None keeps nothing.
    """

    fitting: Fitting = dataclasses.field(default_factory=Fitting)
    at_once: int = 250
    seed: int = 0
    folder: Path | None = None

    def __post_init__(self) -> None:
        check_count("at_once", self.at_once)


class Teachers:
    """A trained ensemble.

    Everything that it says is private until noise was added: `predictions` are one vote a teacher.

    Attributes:
        excluded: the teachers that did not train to finite numbers, also not with smaller steps. They never vote, which
            is decided before the first question.
        retrained: those that needed smaller steps.
    """

    def __init__(self, stacks: Sequence[Stack], excluded: Sequence[int], retrained: Sequence[int]) -> None:
        self._stacks = list(stacks)
        self.excluded, self.retrained = tuple(excluded), tuple(retrained)

    @classmethod
    def train(
        cls,
        build: Callable[[], nn.Module],
        records: Split,
        parts: Sequence[Indices],
        training: TeacherTraining,
        progress: Progress | None = None,
    ) -> "Teachers":
        """Trains one teacher on each part.

        Args:
            build: makes a teacher's network; all are of one kind.
            records: the private records, on the device to train on.
            parts: disjoint row numbers, from `partition`. A class may be missing in a part.
            training: how.
            progress: is told the share that is done.
        """
        if not parts or any(len(part) == 0 for part in parts):
            raise InputError("parts: every teacher needs a record. Train fewer teachers.")
        stacks, excluded, retrained = [], [], []
        for first in range(0, len(parts), training.at_once):
            numbers = range(first, min(first + training.at_once, len(parts)))
            job = _Job(build, records, [parts[number] for number in numbers], numbers, training)
            stack = job.run(_part_of(progress, first, len(numbers), len(parts)))
            stacks.append(stack)
            excluded += [numbers[place] for place in torch.nonzero(~stack.finite()).flatten().tolist()]
            retrained += job.retrained
        return cls(stacks, excluded, retrained)

    @property
    def count(self) -> int:
        """How many teachers vote."""
        return sum(len(stack.finite()) for stack in self._stacks) - len(self.excluded)

    def predictions(self, inputs: Tensor) -> npt.NDArray[np.int64]:
        """``[teachers, queries]``: the vote of every teacher that is not excluded."""
        said = torch.cat([stack.predictions(inputs)[stack.finite()] for stack in self._stacks])
        return said.cpu().numpy()


class _Job:
    """The teachers that are trained together."""

    def __init__(
        self,
        build: Callable[[], nn.Module],
        records: Split,
        parts: Sequence[Indices],
        numbers: range,
        training: TeacherTraining,
    ) -> None:
        self._build, self._records, self._numbers, self._training = build, records, numbers, training
        self._parts = [torch.from_numpy(np.asarray(part, dtype=np.int64)) for part in parts]
        self.retrained: list[int] = []

    def run(self, progress: Progress) -> Stack:
        """Trains those that are not kept yet, again with smaller steps where numbers are not finite."""
        stack = self._fresh(range(len(self._numbers)))
        missing = [place for place in range(len(self._numbers)) if not self._restore(stack, place)]
        for attempt in range(1 + _RETRIES):
            if not missing:
                break
            part = self._fresh(missing)
            fitting = self._training.fitting
            slower = dataclasses.replace(fitting, learning_rate=fitting.learning_rate / 10**attempt)
            rows = [self._parts[place] for place in missing]
            part.fit(self._records.inputs, self._records.targets, rows, slower, progress)
            finite = part.finite().tolist()
            for number, place in enumerate(missing):
                stack.load(place, part.state(number))
                if finite[number]:
                    self._keep(stack, place)
            missing = [place for place, good in zip(missing, finite, strict=True) if not good]
            self.retrained += [self._numbers[place] for place in missing if self._numbers[place] not in self.retrained]
        return stack

    def _fresh(self, places: Sequence[int]) -> Stack:
        seeds = [_seed(self._training.seed, self._numbers[place]) for place in places]
        return Stack(self._build, seeds, self._records.inputs.device)

    def _keep(self, stack: Stack, place: int) -> None:
        path = self._path(place)
        if path is not None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            unfinished = path.with_suffix(".part")
            save_file({name: value.contiguous() for name, value in stack.state(place).items()}, unfinished)
            unfinished.replace(path)

    def _restore(self, stack: Stack, place: int) -> bool:
        path = self._path(place)
        if path is None or not path.exists():
            return False
        stack.load(place, load_file(path))
        return True

    def _path(self, place: int) -> Path | None:
        """A file whose name holds everything that the teacher depends on, so that another run never takes it."""
        folder = self._training.folder
        if folder is None:
            return None
        facts = [dataclasses.asdict(self._training.fitting), self._training.seed, str(self._build())]
        content = hashlib.blake2b(json.dumps(facts).encode(), digest_size=8)
        for tensor in self._records[self._parts[place]]:
            content.update(tensor.cpu().numpy().tobytes())
        return folder / f"teacher-{self._numbers[place]:04d}-{content.hexdigest()}.safetensors"


def _seed(seed: int, number: int) -> int:
    """A seed of a teacher's own."""
    return int.from_bytes(hashlib.blake2b(f"{seed} {number}".encode(), digest_size=7).digest())


def _part_of(progress: Progress | None, done: int, size: int, total: int) -> Progress:
    def tell(share: float) -> None:
        if progress is not None:
            progress((done + share * size) / total)

    return tell
