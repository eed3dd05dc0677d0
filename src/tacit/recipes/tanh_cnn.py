"""Tempered sigmoids: the tanh convolutional network of Papernot et al. on MNIST, Fashion-MNIST and CIFAR-10.

Bounded activations keep gradients short, so that clipping removes less of them. Network and settings are those with
which Tramèr and Boneh reached the same figures again: ``published`` has their noise, and ``recalibrated`` the least
noise that keeps to epsilon by privacy loss distributions. Weights start as `tacit.models.simple.tanh_cnn` says, where
the papers have torch's defaults.
"""

import functools

from tacit.recipes import tramer2021
from tacit.recipes.colour_images import DATASET as COLOUR
from tacit.recipes.recipe import Published, Recipe
from tacit.recipes.tramer2021 import PaperRun

_SOURCE = "Papernot et al., Tempered Sigmoid Activations for Deep Learning with Differential Privacy, AAAI 2021"


def _recipe(name: str, title: str, first: Published, run: PaperRun) -> Recipe:
    return Recipe(
        name=name,
        title=f"A tanh convolutional network on {title}",
        method="tanh CNN",
        source=_SOURCE,
        dataset=run.dataset,
        knobs=tramer2021.Knobs(),
        configure=functools.partial(tramer2021.configure, run),
        published=(first, run.published),
    )


RECIPES = (
    _recipe(
        "tanh-cnn-mnist",
        "MNIST",
        Published(2.93, 0.981, "rdp", "Papernot et al."),
        PaperRun("mnist", "tanh-cnn", 512, 0.5, 1.23, epochs=40, accuracy=0.981),
    ),
    _recipe(
        "tanh-cnn-fashion-mnist",
        "Fashion-MNIST",
        Published(2.7, 0.861, "rdp", "Papernot et al."),
        PaperRun("fashion-mnist", "tanh-cnn", 2048, 4.0, 2.15, epochs=40, accuracy=0.860),
    ),
    _recipe(
        "tanh-cnn-cifar10",
        "CIFAR-10 (JPEG copy)",
        Published(7.53, 0.662, "rdp", "Papernot et al., on the original images"),
        PaperRun(COLOUR, "tanh-cnn", 1024, 1.0, 1.54, epochs=30, accuracy=0.592),
    ),
)
