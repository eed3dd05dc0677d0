"""A prior from noise: features that were learned from random images alone, then trained in private on cifar10-jpeg.

DP-RandP of Tang et al. (2023) in three phases. The first reads no data and costs nothing: a wide residual network
learns from random processes, once (`tacit.training.noise_prior`). The second trains normalisation and head on its
features, the third all weights; both with lots of one plan, the same noise, in one account.

``own``, the default, has as many views and steps as fit in three minutes on a GPU. The rate of its head was chosen on
held-out training examples at epsilon 1, from 6, 8 and the paper's 15; no measurement has chosen its other rates.
``published`` has the paper's noise and steps at epsilon 1, and ``recalibrated`` the least noise that keeps to epsilon.

Where no prior lies in the folder ``prior`` it is made there, which takes minutes on a GPU and is refused on a CPU.
"""

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tacit.clipping import Flat
from tacit.core.errors import InputError
from tacit.core.validation import check_choice
from tacit.datasets.features import Report
from tacit.datasets.locating import cache_folder
from tacit.models.wide_resnet import WideResNet
from tacit.recipes.colour_images import DATASET, half_precision_loss, random_views
from tacit.recipes.knob_rules import check_unchanged
from tacit.recipes.knobs import nearest, with_given
from tacit.recipes.recipe import DELTA, OWN, PUBLISHED, RECALIBRATED, Configuration, Published, Readout, Recipe
from tacit.recipes.scale_cifar10 import examples_at_once
from tacit.training.noise_prior import NoisePrior, load_prior, pretrain_on_noise, prior_facts
from tacit.training.optimizers import schedule_factor
from tacit.training.views import over_views

_KIND = "noise-prior"
SOURCE = (
    "Tang et al., Differentially Private Image Classification by Learning Priors from Random Processes (DP-RandP), "
    "NeurIPS 2023"
)


@dataclasses.dataclass(frozen=True)
class _Level:
    """What a setting has for an epsilon."""

    readout_steps: int
    readout_rate: float
    steps: int
    learning_rate: float
    multiplicity: int
    average: float
    noise: float | None = None


_PUBLISHED: Mapping[float, _Level] = {1.0: _Level(98, 15.0, 875, 0.4, 16, 0.9999, 9.3)}
_OWN: Mapping[float, _Level] = {
    1.0: _Level(50, 6.0, 220, 0.5, 4, 0.98),
    2.0: _Level(50, 6.0, 220, 0.7, 4, 0.98),
    3.0: _Level(50, 6.0, 220, 1.0, 4, 0.98),
    8.0: _Level(50, 6.0, 220, 2.0, 4, 0.98),
}


@dataclasses.dataclass(frozen=True)
class Knobs:
    """What may be changed; None is what the setting has for this epsilon.

    ``steps`` are those of both private phases; as many as ``readout_steps`` train the head alone.
    """

    epsilon: float = 3.0
    setting: str = OWN
    prior: str | None = None
    readout_steps: int | None = None
    readout_rate: float | None = None
    steps: int | None = None
    learning_rate: float | None = None
    multiplicity: int | None = None
    average: float | None = None
    schedule: str = "constant"
    mixtures: int = 0
    batch_size: int = 4096
    clip: float = 1.0
    delta: float = DELTA


def configure(knobs: Knobs) -> Configuration:
    """The run for these knobs."""
    check_choice("setting", knobs.setting, (OWN, PUBLISHED, RECALIBRATED))
    level = _level(knobs)
    if level.readout_steps == 0:
        check_unchanged(knobs, ["readout_rate"], "there are no readout_steps")
    if level.readout_steps == level.steps:
        check_unchanged(knobs, ["learning_rate", "schedule"], "all steps are readout_steps, which have readout_rate")
    folder = prior_folder(knobs.prior)
    return Configuration(
        dataset=DATASET,
        model=lambda _, classes: start(folder, classes),
        batch_size=knobs.batch_size,
        steps=level.steps,
        clipping=Flat(knobs.clip),
        learning_rate=level.learning_rate,
        schedule=schedule_factor(knobs.schedule, max(1, level.steps - level.readout_steps)),
        epsilon=None if knobs.setting == PUBLISHED else knobs.epsilon,
        noise_multiplier=level.noise if knobs.setting == PUBLISHED else None,
        average=level.average,
        loss=over_views(half_precision_loss),
        augment=random_views(level.multiplicity, mixtures=knobs.mixtures),
        readout=Readout(level.readout_steps, level.readout_rate, WideResNet.trunk, WideResNet.readout),
        start=NoiseStart(folder),
        at_once=examples_at_once(knobs.batch_size, level.multiplicity + knobs.mixtures),
        delta=knobs.delta,
    )


@dataclasses.dataclass(frozen=True)
class NoiseStart:
    """The prior of a folder, as what a run begins from."""

    folder: Path

    def make(self, device: torch.device, report: Report) -> None:
        """Makes it where there is none; on a GPU whatever the run's device is."""
        del device
        find_prior(self.folder, report)

    def settings(self) -> dict[str, Any] | None:
        """Those of the default prior; a folder that the user named may hold another."""
        return dataclasses.asdict(NoisePrior().training) if self.folder == prior_folder(None) else None

    def record(self) -> dict[str, Any]:
        """What was written when it was made, and the digest of its weights."""
        with _prior_of_the_user(self.folder):
            return prior_facts(self.folder)


def find_prior(folder: Path, report: Report | None = None) -> WideResNet:
    """The prior of this folder; where there is none it is made."""
    if not folder.exists():
        if not torch.cuda.is_available():
            raise InputError(
                f"prior={str(folder)!r}: there is none, and to make one takes a GPU. Copy one there, or set prior to "
                "where it lies."
            )
        prior = NoisePrior()
        steps = prior.training.steps
        pretrain_on_noise(prior, out=folder, progress=lambda done, _: None if report is None else report(done, steps))
    with _prior_of_the_user(folder):
        return load_prior(folder)


@contextlib.contextmanager
def _prior_of_the_user(folder: Path) -> Iterator[None]:
    """Says what to give in the place of a folder that the user named; that in the cache may be deleted, as is said."""
    try:
        yield
    except InputError as error:
        if folder == prior_folder(None):
            raise
        raise InputError(
            f"prior={str(folder)!r}: holds no prior as tacit writes it, with a record that says where its weights come "
            "from. Give a folder that tacit.training.noise_prior.pretrain_on_noise wrote, or on a machine with a GPU "
            "one that is not there yet, in which it is made."
        ) from error


def prior_folder(given: str | None) -> Path:
    """Where the prior lies: in the cache unless told, in a folder for its settings, so that none of others is taken."""
    if given is not None:
        return Path(given)
    return cache_folder() / _KIND / hashlib.sha256(repr(NoisePrior()).encode()).hexdigest()[:16]


def start(folder: Path, classes: int) -> WideResNet:
    """The prior with a head of zeros, where noise has added nothing yet."""
    model = find_prior(folder)
    model.head = nn.Linear(model.head.in_features, classes)
    nn.init.zeros_(model.head.weight)
    nn.init.zeros_(model.head.bias)
    return model


def _level(knobs: Knobs) -> _Level:
    levels = _OWN if knobs.setting == OWN else _PUBLISHED
    if knobs.setting == PUBLISHED and knobs.epsilon not in levels:
        known = ", ".join(f"{epsilon:g}" for epsilon in levels)
        raise InputError(f"epsilon={knobs.epsilon:g}: the published noise is for {known}. Set another setting.")
    return with_given(nearest(levels, knobs.epsilon), knobs)


RECIPE = Recipe(
    name="noise-prior-cifar10",
    title="A prior from random processes, then head and whole network on CIFAR-10 (JPEG copy)",
    method="noise prior",
    source=SOURCE,
    dataset=DATASET,
    knobs=Knobs(),
    configure=configure,
    published=(Published(1.0, 0.7232, "prv", "on the original images"),),
)
