"""Teachers that are scikit-learn estimators: any classifier that can fit and predict."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from torch import Tensor

from tacit.core.errors import InputError
from tacit.datasets import Split
from tacit.pate.partition import Indices
from tacit.training.ensemble import Progress

Features = npt.NDArray[np.generic]


class EstimatorTeachers:
    """A trained ensemble of estimators, with the surface of `Teachers`.

    Everything that it says is private until noise was added: `predictions` are one vote a teacher.

    Guarantee: a teacher depends on its own part, its number and the public settings alone, so that one record changes
    one vote of each question. Every ``random_state`` of the estimator, also of those within it, is set from seed and
    number; an estimator must not read a global generator, warm up from another teacher or share state in another way.

    Edge cases: a class that is missing in a part is one that its teacher never votes for; a part with a single class
    votes for it always, without being fitted, since many estimators refuse that.

    Teachers are not kept over a crash: a fitted estimator can be saved only as a pickle, which runs whatever code it
    holds when it is read.

    Attributes:
        excluded: the teachers that could not be fitted or do not predict class numbers. They never vote, which is
            decided before the first question.
        retrained: none; there is no step to make smaller.
    """

    def __init__(self, teachers: Sequence["_Teacher"], excluded: Sequence[int]) -> None:
        self._teachers = list(teachers)
        self.excluded: tuple[int, ...] = tuple(excluded)
        self.retrained: tuple[int, ...] = ()

    @classmethod
    def train(
        cls,
        estimator: Any,
        records: Split,
        parts: Sequence[Indices],
        *,
        public: Tensor | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> "EstimatorTeachers":
        """Fits a clone of the estimator to each part, one after the other.

        Args:
            estimator: a classifier with ``fit``, ``predict`` and ``get_params``; it is left as it is. It sees inputs
                as rows of numbers, images flattened, and the classes of its part counted from 0.
            records: the private records with class numbers.
            parts: disjoint row numbers, from `partition`. A class may be missing in a part.
            public: inputs that will be asked for. A teacher that fails on them is excluded here; without them, it
                would be refused by `predictions`.
            seed: from which, with the teacher's number, every ``random_state`` comes.
            progress: is told the share that is done.

        Raises:
            InputError: no estimator, an empty part, or not one teacher that can vote.
        """
        if not all(callable(getattr(estimator, name, None)) for name in ("fit", "predict", "get_params")):
            raise InputError(f"estimator={estimator!r}: must have fit, predict and get_params, as scikit-learn's do.")
        if not parts or any(len(part) == 0 for part in parts):
            raise InputError("parts: every teacher needs a record. Train fewer teachers.")
        inputs, labels = _flat(records.inputs), records.targets.cpu().numpy()
        asked = inputs[:0] if public is None else _flat(public)
        teachers, errors = [], {}
        for number, part in enumerate(parts):
            teacher = _Teacher(_seeded(estimator, seed, number))
            try:
                teacher.fit(inputs[part], labels[part])
                teacher.predictions(np.concatenate([inputs[part], asked]))
            except Exception as error:  # whatever an estimator raises, it is one teacher less
                errors[number] = error
            else:
                teachers.append(teacher)
            if progress is not None:
                progress((number + 1) / len(parts))
        if not teachers:
            reason = " ".join(f"{type(errors[0]).__name__}: {errors[0]}".split())  # on one line
            raise InputError(f"estimator={estimator!r}: no teacher can vote, the first one by {reason}")
        return cls(teachers, sorted(errors))

    @property
    def count(self) -> int:
        """How many teachers vote."""
        return len(self._teachers)

    def predictions(self, inputs: Tensor) -> npt.NDArray[np.int64]:
        """``[teachers, queries]``: the vote of every teacher that is not excluded."""
        return np.stack([teacher.predictions(_flat(inputs)) for teacher in self._teachers])


class _Teacher:
    """An estimator for the classes that its part holds."""

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator
        self._classes = np.zeros(0, dtype=np.int64)

    def fit(self, inputs: Features, labels: npt.NDArray[np.int64]) -> None:
        # Some estimators want classes without gaps, and a part may have gaps.
        self._classes, places = np.unique(labels, return_inverse=True)
        if len(self._classes) > 1:
            self._estimator.fit(inputs, places)

    def predictions(self, inputs: Features) -> npt.NDArray[np.int64]:
        """Class numbers, or an error that names what else was said."""
        if len(self._classes) == 1 or not len(inputs):
            return np.full(len(inputs), self._classes[0])
        said = np.asarray(self._estimator.predict(inputs))
        known = np.isin(said, np.arange(len(self._classes)))
        if said.shape != (len(inputs),) or not known.all():
            raise InputError(
                f"estimator={self._estimator!r}: does not predict one class for each of the inputs. Take a classifier, "
                "and give train all inputs that will be asked for."
            )
        return self._classes[said.astype(np.int64)]


def _seeded(estimator: Any, seed: int, number: int) -> Any:
    """A clone whose random states, its own and those within, belong to this teacher alone."""
    own = int(np.random.SeedSequence((seed, number)).generate_state(1)[0])
    names = [name for name in estimator.get_params() if name.split("__")[-1] == "random_state"]
    return clone(estimator).set_params(**dict.fromkeys(names, own))


def _flat(inputs: Tensor) -> Features:
    return inputs.flatten(1).cpu().numpy()
