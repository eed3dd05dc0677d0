"""A small tanh network on scattering features: Tramèr and Boneh's second head, on MNIST and Fashion-MNIST.

``published`` is the paper's run with its noise, and ``recalibrated`` the same with the least noise that keeps to
epsilon by privacy loss distributions.
"""

import functools

from tacit.recipes import tramer2021
from tacit.recipes.recipe import Recipe
from tacit.recipes.tramer2021 import PaperRun


def _recipe(title: str, run: PaperRun) -> Recipe:
    return Recipe(
        name=f"{run.model}-{run.dataset}",
        title=f"Scattering features and a tanh network on {title}",
        method="ScatterNet + CNN",
        source=tramer2021.SOURCE,
        dataset=run.dataset,
        knobs=tramer2021.Knobs(),
        configure=functools.partial(tramer2021.configure, run),
        published=(run.published,),
    )


RECIPES = (
    _recipe(
        "MNIST",
        PaperRun("mnist", "scatter-cnn", 1024, 1.0, 1.35, epochs=22, accuracy=0.987, normalisation_noise=8.0),
    ),
    _recipe(
        "Fashion-MNIST", PaperRun("fashion-mnist", "scatter-cnn", 2048, 4.0, 2.15, epochs=40, accuracy=0.890, groups=27)
    ),
)
