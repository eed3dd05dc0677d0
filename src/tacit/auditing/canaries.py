r"""Canaries: records that are planted to see whether a model gives them away.

M places of the training split are drawn, and each of them is given to a canary. A fair coin of its own decides whether
the canary is there (it stands in the place) or not (the place is left out): two data sets that differ in one coin are
neighbours under add-remove. So whoever guesses many coins right from what was released shows a lower bound on epsilon
(Steinke, Nasr and Jagielski, Privacy Auditing with One (1) Training Run, 2023).

A canary is a record among others: it is sampled, clipped and noised like them, the plan and its accounting do not
change, and the public number of examples stays. Places are drawn from that number, whether a record is in them or not,
so that one person more or less changes one record of what is trained on, or none. Nobody contributes a second record,
since canaries take places and are not added: a mislabelled canary is somebody's own record, with another label.

**What is private.** Which coins fell how is a secret of the audit. Blank and adversarial canaries belong to nobody:
they and their coins are drawn without a look at any record, so that what is computed from them and a released model is
post-processing of the model, and costs nothing. Mislabelled canaries are people's inputs. What is computed from them
was paid for by nobody, and stays with the owner of the data.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from tacit.core.errors import InputError, UnsupportedError
from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.core.validation import check_choice, check_count
from tacit.datasets import DataSet, Split
from tacit.training.fingerprint import digest_text

DEFAULT_KIND = "adversarial"
FEWEST = 10
_SCHEMA = 1
_MARKS = 3  # inputs of a blank canary that are not blank, to tell one from the other
_AMPLITUDE = 0.3
_LARGEST_SHARE = 0.5


@dataclasses.dataclass(frozen=True, eq=False)
class Planting:
    """Canaries and where their coins fell. Private as a whole.

    Attributes:
        kind: a name of `KINDS`.
        places: ``[M]``, the rows of the training split that were given to canaries.
        inputs, targets: the canaries.
        included: ``[M]``, whether each was trained on.
        shape: what a model must know to be built again: ``input_shape``, ``classes``, ``task``, ``columns``.
    """

    kind: str
    places: Tensor
    inputs: Tensor
    targets: Tensor
    included: Tensor
    shape: Mapping[str, Any]

    FILE_NAME: ClassVar[str] = "private-canaries.safetensors"  # in a run's folder, readable by its owner alone

    def __len__(self) -> int:
        return len(self.places)

    @property
    def of_people(self) -> bool:
        """Whether the canaries are people's own inputs, so that what is computed from them is private."""
        return self.kind in _OF_PEOPLE

    def plant(self, data: DataSet) -> DataSet:
        """The data as they are trained on: canaries that are there in their places, without the places of the rest."""
        pool = self.pool(data)
        there = torch.ones(len(pool), dtype=torch.bool)
        there[self.places] = self.included
        return dataclasses.replace(data, train=Split(pool.inputs[there], pool.targets[there]))

    def pool(self, data: DataSet) -> Split:
        """The training split with every canary in its place, whatever its coin: for coins of another hand."""
        inputs, targets = data.train.inputs.clone(), data.train.targets.clone()
        inputs[self.places], targets[self.places] = self.inputs, self.targets
        return Split(inputs, targets)

    def facts(self) -> dict[str, Any]:
        """What a run's record may say: the kind and how many, never which."""
        return {"kind": self.kind, "count": len(self)}

    def mark(self) -> str:
        """A digest that tells this planting from others. Places are drawn without a look at any record or coin."""
        return digest_text(f"{self.kind} {self.places.tolist()}")

    def to_bytes(self) -> bytes:
        """As a safetensors file."""
        tensors = {name: getattr(self, name).contiguous() for name in _TENSORS}
        header = {"schema": _SCHEMA, "kind": self.kind, "shape": dict(self.shape)}
        written: bytes = save(tensors, metadata={"tacit": json.dumps(header)})
        return written


_TENSORS = ("places", "inputs", "targets", "included")


def plant(
    data: DataSet,
    count: int,
    kind: str,
    randomness: Randomness,
    *,
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
) -> tuple[DataSet, Planting]:
    """Gives ``count`` random places of the training split to canaries, each of which is there by a fair coin.

    Args:
        data: what is trained on. Its size, shapes and number of classes are public; mislabelled canaries also look at
            the records whose places they take.
        count: M, from 10 to half of the examples.
        kind: a name of `KINDS`.
        randomness: of places, canaries and coins.
        neighbours: of the plan. A canary that is not there leaves a smaller data set, which add-remove alone speaks of.

    Returns:
        The data to train on, and the planting, which is private.
    """
    check_choice("canary_kind", kind, KINDS)
    check_count("canaries", count, minimum=FEWEST, remedy="Fewer show next to nothing.")
    examples = len(data.train)
    if count > _LARGEST_SHARE * examples:
        raise InputError(
            f"canaries={count}: take the places of examples, and must be at most half of the {examples}. Plant fewer."
        )
    if neighbours is not Neighbours.ADD_REMOVE:
        raise UnsupportedError(
            f"neighbours={neighbours.value!r}: a canary that is not there changes the number of records, which is "
            "public under this relation. Use the poisson sampler, which is accounted under add-remove."
        )
    stream = randomness.stream("canaries")
    places = torch.from_numpy(np.sort(stream.choice(examples, size=count, replace=False)))
    inputs, targets = KINDS[kind](data, places, stream)
    planting = Planting(
        kind=kind,
        places=places,
        inputs=inputs.to(data.train.inputs.dtype),
        targets=targets.to(data.train.targets.dtype),
        included=torch.from_numpy(stream.random(count) < 0.5),
        shape=shape_of(data),
    )
    return planting.plant(data), planting


def shape_of(data: DataSet) -> dict[str, Any]:
    """What a network must know to be built for these data, as plain JSON values."""
    return {
        "input_shape": list(data.input_shape),
        "classes": data.classes,
        "task": data.task,
        "columns": [list(column) for column in data.columns],
    }


def _mislabelled(data: DataSet, places: Tensor, stream: np.random.Generator) -> tuple[Tensor, Tensor]:
    """The records of these places with a wrong label: any other class, or the farther end of a regression's range."""
    inputs, targets = data.train.inputs[places], data.train.targets[places]
    if data.task == "regression":
        return inputs, torch.where(targets > 0, -1.0, 1.0)
    shifts = torch.from_numpy(stream.integers(1, data.classes, size=len(places)))
    return inputs, (targets + shifts) % data.classes


def _blank(data: DataSet, places: Tensor, stream: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Zeros but for three inputs at random, from 0.5 to 1, which tell one canary from the other; and a random label."""
    size = math.prod(data.input_shape)
    inputs = torch.zeros(len(places), size)
    for row in inputs:
        marked = stream.choice(size, size=min(_MARKS, size), replace=False)
        row[torch.from_numpy(marked)] = torch.from_numpy(stream.uniform(0.5, 1.0, size=len(marked))).float()
    return inputs.reshape(-1, *data.input_shape), _random_targets(data, len(places), stream)


def _adversarial(data: DataSet, places: Tensor, stream: np.random.Generator) -> tuple[Tensor, Tensor]:
    r"""A random direction of length :math:`0.3 \sqrt{d}`, about that of an input in [0, 1], and a random label.

    What clipping leaves of a canary's gradient has norm C whatever the canary is. It is found again in the model's
    answer to the same input if no other gradient has much in common with it. Random directions are nearly orthogonal to
    each other and to every record: their cosine with anything else in d dimensions has mean 0 and standard deviation
    :math:`1 / \sqrt{d}`. No natural input lies there, so that nothing else teaches the model what to answer.
    """
    size = math.prod(data.input_shape)
    drawn = stream.standard_normal((len(places), size))
    directions = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    inputs = torch.from_numpy(_AMPLITUDE * math.sqrt(size) * directions)
    return inputs.reshape(-1, *data.input_shape), _random_targets(data, len(places), stream)


def _random_targets(data: DataSet, count: int, stream: np.random.Generator) -> Tensor:
    if data.task == "regression":
        return torch.from_numpy(2.0 * stream.integers(0, 2, size=count) - 1.0)
    return torch.from_numpy(stream.integers(0, data.classes, size=count))


KINDS: Mapping[str, Callable[[DataSet, Tensor, np.random.Generator], tuple[Tensor, Tensor]]] = {
    "mislabelled": _mislabelled,
    "blank": _blank,
    "adversarial": _adversarial,
}
"""Inputs and targets of canaries by kind. All but mislabelled are made without a look at the records."""
_OF_PEOPLE = frozenset({"mislabelled"})


def read_planting(folder: Path) -> Planting:
    """The canaries of a run.

    Raises:
        InputError: the folder holds none, or a file that cannot be read.
    """
    path = folder / Planting.FILE_NAME
    if not path.exists():
        raise InputError(
            f"run={str(folder)!r}: {Planting.FILE_NAME} is missing, which says what its canaries were. Restore it, or "
            "train again with --canaries M."
        )
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["tacit"])
            tensors = {name: file.get_tensor(name) for name in _TENSORS}
        planting = Planting(kind=str(header["kind"]), shape=dict(header["shape"]), **tensors)
        known = header["schema"] == _SCHEMA
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: cannot be read ({error}). Restore the file, or train again.") from error
    wrong = next((part for part, fits in _FORM.items() if not fits(planting)), None) if known else "schema"
    if wrong:
        raise InputError(f"{path}: holds no canaries of a known form ({wrong}). Restore the file, or train again.")
    return planting


def planting_of(folder: Path | None, count: int | None, kind: str | None) -> Planting | None:
    """The canaries of a run that goes on; None where it has none.

    Args:
        folder: of the run; None where it was not named.
        count, kind: what was asked for now, which must be what the run has; None takes what it has.

    Raises:
        InputError: canaries are asked for that the folder does not hold. New ones would have coins that the model was
            not trained by, and an audit of them would find nothing, whatever leaks.
    """
    wanted = [f"{name}={value!r}" for name, value in (("canaries", count), ("canary_kind", kind)) if value is not None]
    if folder is None and wanted:
        raise InputError(
            f"{', '.join(wanted)}: a run that goes on has its own, in its folder. Name that with --out, or start anew "
            "without --resume."
        )
    if folder is None or (not wanted and not (folder / Planting.FILE_NAME).exists()):
        return None
    planting = read_planting(folder)
    for name, asked, found in (("canaries", count, len(planting)), ("canary_kind", kind, planting.kind)):
        if asked not in (None, found):
            raise InputError(f"{name}={asked!r}: the run that goes on has {found!r}. Leave it out.")
    return planting


def _places_fit(planting: Planting) -> bool:
    places = planting.places
    if places.dtype != torch.int64 or places.dim() != 1 or len(places) < FEWEST:
        return False
    return bool((places >= 0).all()) and len(set(places.tolist())) == len(places)


def _coins_fit(planting: Planting) -> bool:
    return planting.included.dtype == torch.bool and planting.included.shape == planting.places.shape


def _shape_fits(planting: Planting) -> bool:
    shape = planting.shape
    if not shape.keys() >= {"input_shape", "classes", "task", "columns"}:
        return False
    sizes, columns = shape["input_shape"], shape["columns"]
    return (
        isinstance(sizes, list)
        and all(_is_count(size) for size in (*sizes, shape["classes"]))
        and shape["task"] in ("classification", "regression")
        and isinstance(columns, list)
        and all(_is_column(column) for column in columns)
    )


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1


def _is_column(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and _is_count(value[1])


def _inputs_fit(planting: Planting) -> bool:
    inputs = planting.inputs
    expected = [len(planting), *planting.shape["input_shape"]]
    return inputs.is_floating_point() and list(inputs.shape) == expected and bool(inputs.isfinite().all())


def _targets_fit(planting: Planting) -> bool:
    targets = planting.targets
    if targets.shape != planting.places.shape:
        return False
    if planting.shape["task"] == "regression":
        return targets.is_floating_point() and bool(targets.isfinite().all())
    return targets.dtype == torch.int64 and bool(((targets >= 0) & (targets < planting.shape["classes"])).all())


_FORM: Mapping[str, Callable[[Planting], bool]] = {
    "kind": lambda planting: planting.kind in KINDS,
    "places": _places_fit,
    "included": _coins_fit,
    "shape": _shape_fits,
    "inputs": _inputs_fit,
    "targets": _targets_fit,
}
"""What each part of a file must be like. A part may rely on those before it."""
