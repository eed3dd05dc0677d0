"""A recipe that runs in no time: principal components and a linear model on the digits."""

from torch import nn

from tacit.clipping import Flat
from tacit.recipes import Published, Recipe
from tacit.recipes.recipe import Configuration


def small_configuration(**changes):
    settings = {
        "dataset": "digits",
        "model": lambda shape, classes: nn.Linear(shape[0], classes),
        "batch_size": 100,
        "clipping": Flat(1.0),
        "learning_rate": 0.5,
    }
    return Configuration(**{**settings, **changes})


def small_recipe(knobs, configure, published):
    return Recipe("small", "small", "PCA + linear", "nobody", "digits", knobs, configure, published)


MODERATE = Published(3.0, 0.5, "moments")
