"""The recipes by name."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tacit.core.validation import check_choice
from tacit.recipes import (
    abadi2016_cifar10,
    abadi2016_mnist,
    census_employed,
    filters_linear_fashion,
    first_course_images,
    handcrafted_cifar10,
    linear_cifar10,
    noise_prior_cifar10,
    pate2017_votes,
    pate_images,
    scale_cifar10,
    scatter_cnn,
    scatter_cnn_cifar10,
    scatter_linear,
    tanh_cnn,
    tanh_filter_images,
    tanh_filter_recurrent,
)
from tacit.recipes.recipe import Recipe

_ALL = (
    abadi2016_mnist.RECIPE,
    *first_course_images.RECIPES,
    *tanh_filter_images.RECIPES,
    tanh_filter_recurrent.RECIPE,
    *scatter_linear.RECIPES,
    filters_linear_fashion.RECIPE,
    *scatter_cnn.RECIPES,
    *tanh_cnn.RECIPES,
    abadi2016_cifar10.RECIPE,
    *handcrafted_cifar10.RECIPES,
    *linear_cifar10.RECIPES,
    scatter_cnn_cifar10.RECIPE,
    scale_cifar10.RECIPE,
    noise_prior_cifar10.RECIPE,
    *census_employed.RECIPES,
    *pate_images.RECIPES,
    pate2017_votes.RECIPE,
)
RECIPES: Mapping[str, Recipe] = MappingProxyType({recipe.name: recipe for recipe in _ALL})


def find_recipe(name: str) -> Recipe:
    """The recipe of a name; an unknown one is an `InputError` that lists those there are."""
    check_choice("name", name, RECIPES.keys(), remedy="See tacit recipe list.")
    return RECIPES[name]


def published_figures() -> list[dict[str, Any]]:
    """Every published figure of the recipes, as plain JSON values."""
    return [
        {
            **{"recipe": recipe.name, "dataset": recipe.dataset, "method": recipe.method, "source": recipe.source},
            **dataclasses.asdict(figure),
        }
        for recipe in RECIPES.values()
        for figure in recipe.published
    ]
