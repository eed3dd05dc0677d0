"""Published results again: one file a result, each a frozen configuration with the figures it is measured against."""

from tacit.recipes.catalogue import RECIPES as RECIPES
from tacit.recipes.catalogue import find_recipe as find_recipe
from tacit.recipes.catalogue import published_figures as published_figures
from tacit.recipes.conditions import Conditions as Conditions
from tacit.recipes.interrupting import SeedsInterrupted as SeedsInterrupted
from tacit.recipes.knobs import split_settings as split_settings
from tacit.recipes.private_sweep import Selection as Selection
from tacit.recipes.private_sweep import run_private_sweep as run_private_sweep
from tacit.recipes.recipe import Configuration as Configuration
from tacit.recipes.recipe import Published as Published
from tacit.recipes.recipe import Recipe as Recipe
from tacit.recipes.results import folder_for_result as folder_for_result
from tacit.recipes.results import read_results as read_results
from tacit.recipes.results import results_by_recipe as results_by_recipe
from tacit.recipes.results import write_result as write_result
from tacit.recipes.running import run_recipe as run_recipe
from tacit.recipes.sweeping import Axis as Axis
from tacit.recipes.sweeping import find_subject as find_subject
from tacit.recipes.sweeping import read_axes as read_axes
from tacit.recipes.sweeping import run_sweep as run_sweep
