"""Handcrafted features on cifar10-jpeg as Tramèr and Boneh have them, beside which our own lines stand.

``published`` is the paper's run with its noise, and ``recalibrated`` the same with the least noise that keeps to
epsilon by privacy loss distributions. Channels are normalised in private, by noise that is in the account. Beyond them
go `linear_cifar10` and `scatter_cnn_cifar10`.
"""

import functools

from tacit.recipes import tramer2021
from tacit.recipes.colour_images import DATASET
from tacit.recipes.recipe import Recipe
from tacit.recipes.tramer2021 import PaperRun


def _recipe(kind: str, classifier: str, method: str, accuracy: float) -> Recipe:
    run = PaperRun(DATASET, f"scatter-{kind}", 8192, 4.0, 5.67, epochs=60, accuracy=accuracy, normalisation_noise=8.0)
    return Recipe(
        name=f"handcrafted-{kind}-cifar10",
        title=f"Scattering features and a {classifier} as published, on CIFAR-10 (JPEG copy)",
        method=method,
        source=tramer2021.SOURCE,
        dataset=DATASET,
        knobs=tramer2021.Knobs(),
        configure=functools.partial(tramer2021.configure, run),
        published=(run.published,),
    )


RECIPES = (
    _recipe("linear", "linear classifier", "ScatterNet + linear", 0.670),
    _recipe("cnn", "tanh network", "ScatterNet + CNN", 0.693),
)
