"""Deep learning with differential privacy on PyTorch: train, account for, audit and release private models.

>>> import tacit
>>> plan = tacit.DPSGD(expected_batch_size=512, examples=60_000, steps=4_000,
...                    clipping=tacit.clipping.Flat(0.1), epsilon=3.0, delta=1e-5)
>>> round(plan.noise_multiplier, 2)
1.02

Names are imported when they are first used, so that budgets can be accounted for without waiting for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit import accounting as accounting
    from tacit import auditing as auditing
    from tacit import benchmarking as benchmarking
    from tacit import clipping as clipping
    from tacit import datasets as datasets
    from tacit import gradients as gradients
    from tacit import ledger as ledger
    from tacit import linear as linear
    from tacit import mechanisms as mechanisms
    from tacit import models as models
    from tacit import pate as pate
    from tacit import queries as queries
    from tacit import recipes as recipes
    from tacit import sampling as sampling
    from tacit import training as training
    from tacit.core.privacy import Budget as Budget
    from tacit.core.privacy import Neighbours as Neighbours
    from tacit.core.privacy import PrivacyUnit as PrivacyUnit
    from tacit.core.privacy import Statement as Statement
    from tacit.core.randomness import Randomness as Randomness
    from tacit.gradients import clipped_grad as clipped_grad
    from tacit.gradients import preflight as preflight
    from tacit.plan import DPSGD as DPSGD
    from tacit.training import Checkpoint as Checkpoint
    from tacit.training import Execution as Execution
    from tacit.training import FitResult as FitResult
    from tacit.training import Private as Private
    from tacit.training import TrainingInterrupted as TrainingInterrupted
    from tacit.training import WeightAverage as WeightAverage
    from tacit.training import fit as fit

_ROOMS = (
    *("accounting", "auditing", "benchmarking", "clipping", "datasets", "gradients", "ledger", "linear", "mechanisms"),
    *("models", "pate", "plan", "queries", "recipes", "reporting", "sampling", "training"),
)
_HOMES = {
    "tacit.core.privacy": ("Budget", "Neighbours", "PrivacyUnit", "Statement"),
    "tacit.core.randomness": ("Randomness",),
    "tacit.gradients": ("clipped_grad", "preflight"),
    "tacit.plan": ("DPSGD",),
    "tacit.training": (
        *("Checkpoint", "Execution", "FitResult", "Private", "TrainingInterrupted", "WeightAverage", "fit"),
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted([*_ROOMS, *_HOME_OF])


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"tacit.{name}")
    if name in _HOME_OF:
        return getattr(importlib.import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
