"""What a recipe is: a frozen configuration for every choice of a few knobs, and the published figures beside it."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from dp_accounting import ComposedDpEvent, DpEvent
from torch import Tensor, nn

from tacit.accounting import epsilon as epsilon_of
from tacit.clipping import Clipping
from tacit.core.errors import InputError
from tacit.core.validation import check_choice, check_count
from tacit.datasets import DataSet, Split, load, with_features
from tacit.datasets.features import FeatureMap, Report
from tacit.gradients.losses import LossFunction
from tacit.plan import DPSGD, Preparation
from tacit.recipes.knob_rules import check_lot
from tacit.recipes.knobs import changed, in_words, refuse_privacy
from tacit.sampling import steps_for_epochs
from tacit.training.evaluation import classification_loss
from tacit.training.optimizers import OPTIMIZERS
from tacit.training.preparation import prepared
from tacit.training.views import Augment

DELTA = 1e-5
PUBLISHED, RECALIBRATED, OWN, PLAIN = "published", "recalibrated", "own", "plain"

Build = Callable[[tuple[int, ...], int], nn.Module]
"""A model for the shape of one input and the number of classes."""
Preparations = tuple[Preparation, ...]
Schedule = Callable[[int], float]
"""The factor on the learning rate of a step, counted from 0."""


def constant(step: int) -> float:
    """No schedule."""
    del step
    return 1.0


class Start(Protocol):
    """Weights that were learned from public data, or from none at all, once for all seeds: they cost no privacy."""

    def make(self, device: torch.device, report: Report) -> None:
        """Makes them, unless they are kept from before."""

    def record(self) -> Mapping[str, Any]:
        """Where they come from, as plain JSON values."""

    def settings(self) -> Mapping[str, Any] | None:
        """What they are trained with, as the record's ``training`` has it; None where the user chose others."""


@dataclasses.dataclass(frozen=True)
class Readout:
    """A first phase that trains what stands after a trunk, on the trunk's outputs, computed once for every example.

    The trunk must be public, such as one that was trained on noise: then its outputs cost no privacy.

    Attributes:
        steps: how many of the run's steps it takes; at most all of them.
        learning_rate: constant.
        trunk: of a model and images, the outputs; an augmentation's views come before it.
        network: of a model, what stands after the trunk, with the model's own parameters.
    """

    steps: int
    learning_rate: float
    trunk: Callable[[Any, Tensor], Tensor]
    network: Callable[[Any], nn.Module]


@dataclasses.dataclass(frozen=True)
class Configuration:
    """One run, whole: everything that its result depends on but the random numbers.

    Attributes:
        dataset: a name of `tacit.datasets.CATALOGUE`.
        model: builds the model for the inputs that features and preparations leave.
        batch_size: the expected lot size, Poisson sampled.
        epochs, steps: how long; one of them.
        clipping: of one example's gradient.
        learning_rate, optimizer, schedule: of the update; the optimizer by name.
        epsilon, noise_multiplier: one of them, the other is found; epsilon by privacy loss distributions.
        delta: of the guarantee.
        features: for the shape of one input, a public map of inputs that learns nothing from the data, such as a
            scattering transform.
        preparations: private looks at the data before training, in the same account; or what makes them for a public
            number of examples.
        preparation_knob: the recipe's knob that says their noise, where it has one.
        average: decay of the moving average of the weights; None for the last iterate.
        loss: one loss an example.
        augment: makes, for a generator on the training device, what changes every batch on its way to the loss.
        readout: trains the last layers alone first, with the first of the steps.
        start: makes what the model, or a public map of inputs, takes its weights from, before any of them is built.
        at_once: how many examples a GPU works on at once, where a whole lot does not fit.
        private: False for a baseline without any guarantee: nothing is clipped, neither preparations nor training have
            noise, and there is no plan.
    """

    dataset: str
    model: Build
    batch_size: int
    clipping: Clipping
    learning_rate: float
    epochs: float | None = None
    steps: int | None = None
    epsilon: float | None = None
    noise_multiplier: float | None = None
    delta: float = DELTA
    optimizer: str = "sgd"
    schedule: Schedule = constant
    features: Callable[[tuple[int, ...]], FeatureMap] | None = None
    preparations: Preparations | Callable[[int], Preparations] = ()
    preparation_knob: str | None = None
    average: float | None = None
    loss: LossFunction = classification_loss
    augment: Callable[[torch.Generator], Augment] | None = None
    readout: Readout | None = None
    start: Start | None = None
    at_once: int | None = None
    private: bool = True

    def __post_init__(self) -> None:
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        if (self.epochs is None) == (self.steps is None):
            raise InputError(f"epochs={self.epochs}, steps={self.steps}: exactly one of them says how long.")
        if self.readout is not None and self.steps is not None and self.readout.steps > self.steps:
            raise InputError(f"readout_steps={self.readout.steps}: must be at most the {self.steps} steps of the run.")
        if not self.private and (self.readout is not None or self.augment is not None):
            raise InputError("private=False: is for runs without readout and augmentation. Leave them out.")

    def steps_for(self, examples: int) -> int:
        """How many steps the run takes."""
        if self.steps is not None:
            return self.steps
        return steps_for_epochs(self.epochs or 0, examples=examples, batch_size=self.batch_size)

    def preparations_for(self, examples: int) -> Preparations:
        """The private looks at a public number of examples."""
        return self.preparations(examples) if callable(self.preparations) else self.preparations

    def refuse_dear_preparations(self, examples: int, epsilon: float, cost: Callable[[DpEvent], float]) -> None:
        """Raises an `InputError` where the preparations alone cost epsilon or more, which no later noise can mend."""
        preparations = self.preparations_for(examples)
        if not preparations:
            return
        alone = cost(ComposedDpEvent([preparation.mechanism.event() for preparation in preparations]))
        if alone >= epsilon:
            described = ", and ".join(preparation.describe() for preparation in preparations)
            knob = "" if self.preparation_knob is None else f", or a larger {self.preparation_knob}"
            raise InputError(
                f"epsilon={epsilon:g}: before training come {described}, which cost {alone:.3g} however much noise "
                f"training has. Set a larger epsilon{knob}."
            )

    def _check_examples(self, examples: int) -> None:
        check_lot(self.batch_size, examples)
        self._check_epsilon(examples)

    def _check_epsilon(self, examples: int) -> None:
        if self.private and self.epsilon is not None:
            self.refuse_dear_preparations(examples, self.epsilon, lambda event: epsilon_of(event, self.delta))

    def plan(self, examples: int) -> DPSGD:
        """The plan on a public number of examples: Poisson sampling, accounted by privacy loss distributions."""
        if not self.private:
            raise InputError("private=False: training without noise has no plan. Take a private setting.")
        self._check_epsilon(examples)
        return DPSGD(
            expected_batch_size=check_lot(self.batch_size, examples),
            examples=examples,
            steps=self.steps_for(examples),
            clipping=self.clipping,
            delta=self.delta,
            epsilon=self.epsilon,
            noise_multiplier=self.noise_multiplier,
            preparations=self.preparations_for(examples),
        )

    def make_start(self, device: torch.device, report: Report) -> dict[str, Any] | None:
        """Makes the public start, where there is one, and says where it comes from.

        Raises:
            InputError: a lot or an epsilon that the data set refuses; better now than after minutes of a GPU.
        """
        if self.start is None:
            return None
        self._check_examples(len(load(self.dataset).train))
        self.start.make(device, report)
        return dict(self.start.record())

    def with_smaller_lots(self, factor: int, examples: int) -> "Configuration":
        """A cheaper stand-in to choose by: lots and noise ``factor`` times smaller, as many steps, equal rates.

        The mean gradient has the noise of the full run on ``examples`` examples, and training depends on that and on
        the steps nearly alone. Its own guarantee is far weaker.

        Reference: Sander, Stock and Sablayrolles, TAN Without a Burn: Scaling Laws of DP-SGD, ICML 2023.
        """
        check_count("smaller_lots", factor)
        if self.batch_size < factor:
            raise InputError(
                f"smaller_lots={factor}: must be at most the lot of {self.batch_size}. Take a smaller factor."
            )
        full = self.plan(examples)
        return dataclasses.replace(
            self,
            batch_size=self.batch_size // factor,
            steps=full.steps,
            epochs=None,
            epsilon=None,
            noise_multiplier=full.noise_multiplier * (self.batch_size // factor) / self.batch_size,
        )

    def load(self, device: torch.device, report: Report | None = None) -> DataSet:
        """The data set on the device, with its features. A CPU keeps those on disk; a GPU makes them in less time."""
        data = load(self.dataset)
        self._check_examples(len(data.train))  # before features, which take minutes
        if device.type != "cpu":
            data = dataclasses.replace(data, train=_moved(data.train, device), test=_moved(data.test, device))
        if self.features is None:
            return data
        features = self.features(data.input_shape)
        if device.type == "cpu" or not isinstance(features, nn.Module):
            return with_features(data, features, report=report)
        return prepared(data, features.to(device))


def _moved(split: Split, device: torch.device) -> Split:
    return Split(split.inputs.to(device), split.targets.to(device))


@dataclasses.dataclass(frozen=True)
class Published:
    """A figure of a paper.

    Attributes:
        epsilon: as claimed there; None for a figure without privacy.
        accuracy: on the test set, as a fraction.
        accountant: how epsilon was computed there.
        note: what else a reader must know to compare.
    """

    epsilon: float | None
    accuracy: float
    accountant: str
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A published result, or one of our own, that one command measures again.

    Attributes:
        name: on the command line.
        title: one line.
        method: what the line is called in tables and figures.
        source: the paper, or where else the method comes from.
        dataset: what it is measured on.
        knobs: a frozen dataclass with the defaults of everything that ``--set`` may change.
        configure: the whole configuration for given knobs; None where the recipe runs itself.
        published: the figures to compare with.
        epsilons: for knobs and the plan, what else epsilon was or could be said to be, by name.
        run: of knobs, conditions and progress, the result; for what is no private classification of a named set.
    """

    name: str
    title: str
    method: str
    source: str
    dataset: str
    knobs: Any
    configure: Callable[[Any], Configuration] | None = None
    published: tuple[Published, ...] = ()
    epsilons: Callable[[Any, DPSGD], Mapping[str, float]] | None = None
    run: Callable[..., dict[str, Any]] | None = None

    def with_settings(self, settings: Mapping[str, str]) -> Any:
        """The knobs with what ``--set`` says; a wrong name or value is an `InputError`."""
        return changed(self.knobs, settings)

    def words_for(self, settings: Mapping[str, str]) -> list[str]:
        """What ``--set`` says, in the order of the knobs: what a result file is named by."""
        return in_words(self.knobs, settings)

    def configured(self, settings: Mapping[str, str]) -> Configuration:
        """The whole configuration with what ``--set`` says."""
        if self.configure is None:
            raise InputError(f"name={self.name!r}: runs by itself and has no sweeps. Use tacit recipe run --set.")
        configuration = self.configure(self.with_settings(settings))
        if not configuration.private:
            refuse_privacy(settings)
        return configuration

    def check(self, settings: Mapping[str, str]) -> None:
        """Raises what is wrong with the settings, before anything is loaded."""
        if self.configure is None:
            self.with_settings(settings)
        else:
            self.configured(settings)

    def published_for(self, knobs: Any, *, private: bool = True) -> Published | None:
        """The published figure to compare with: that for the knobs' epsilon, unless other noise was asked for.

        For a run without privacy it is the one without.
        """
        epsilon = getattr(knobs, "epsilon", None)
        if private and (epsilon is None or getattr(knobs, "noise_multiplier", None) is not None):
            return None
        return next((figure for figure in self.published if figure.epsilon == (epsilon if private else None)), None)
