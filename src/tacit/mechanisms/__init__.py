"""The only place that draws noise; every mechanism says its sensitivity, its scale and its event.

- `Gaussian`, `Laplace`: floating-point noise for numbers, tensors and gradients by name.
- `DiscreteGaussian`, `DiscreteLaplace`, `RoundedGaussian`: exact integer noise, with no floating-point number in the
  sampler.
- `GridRelease`: real statistics released on a public grid with exact integer noise.
- `Exponential`, `NoisyMax`: one of several candidates, chosen exactly.

Those for tensors are imported when they are first used: statistics of tables need no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tacit.mechanisms.discrete import DiscreteGaussian as DiscreteGaussian
from tacit.mechanisms.discrete import DiscreteLaplace as DiscreteLaplace
from tacit.mechanisms.exponential import Exponential as Exponential
from tacit.mechanisms.grid import GridRelease as GridRelease
from tacit.mechanisms.grid import grid_l1_sensitivity as grid_l1_sensitivity
from tacit.mechanisms.grid import grid_l2_sensitivity as grid_l2_sensitivity
from tacit.mechanisms.noisy_max import NoisyMax as NoisyMax
from tacit.mechanisms.rounded_gaussian import RoundedGaussian as RoundedGaussian

if TYPE_CHECKING:
    from tacit.mechanisms.additive import AdditiveMechanism as AdditiveMechanism
    from tacit.mechanisms.gaussian import Gaussian as Gaussian
    from tacit.mechanisms.laplace import Laplace as Laplace
    from tacit.mechanisms.step_noise import StepNoise as StepNoise

_HOME_OF = {"AdditiveMechanism": "additive", "Gaussian": "gaussian", "Laplace": "laplace", "StepNoise": "step_noise"}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'tacit.mechanisms' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tacit.mechanisms.{_HOME_OF[name]}"), name)
