"""The only place that draws noise; every mechanism says its sensitivity, its scale and its event.

- `Gaussian`, `Laplace`: floating-point noise for numbers, tensors and gradients by name.
- `DiscreteGaussian`, `DiscreteLaplace`: exact integer noise, with no floating-point number in the sampler.
- `GridRelease`: real statistics released on a public grid with exact integer noise.
"""

from tacit.mechanisms.additive import AdditiveMechanism as AdditiveMechanism
from tacit.mechanisms.discrete import DiscreteGaussian as DiscreteGaussian
from tacit.mechanisms.discrete import DiscreteLaplace as DiscreteLaplace
from tacit.mechanisms.gaussian import Gaussian as Gaussian
from tacit.mechanisms.grid import GridRelease as GridRelease
from tacit.mechanisms.grid import grid_l1_sensitivity as grid_l1_sensitivity
from tacit.mechanisms.grid import grid_l2_sensitivity as grid_l2_sensitivity
from tacit.mechanisms.laplace import Laplace as Laplace
from tacit.mechanisms.step_noise import StepNoise as StepNoise
