"""Samplers by the names that the command line uses."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from tacit.core.validation import check_choice
from tacit.sampling.fixed_size import FixedSize
from tacit.sampling.poisson import Poisson
from tacit.sampling.sampler import Sampler, check_batch_fits
from tacit.sampling.shuffled import Shuffled
from tacit.sampling.truncated import TruncatedPoisson


def _poisson(examples: int, batch_size: int) -> Sampler:
    return Poisson(batch_size / examples)


def _truncated(examples: int, batch_size: int) -> Sampler:
    """Room for five standard deviations above the mean, so that truncation is rare and costs little."""
    limit = math.ceil(batch_size + 5 * math.sqrt(batch_size))
    return TruncatedPoisson(batch_size / examples, examples, min(limit, examples))


SAMPLERS: Mapping[str, Callable[[int, int], Sampler]] = MappingProxyType(
    {"poisson": _poisson, "truncated-poisson": _truncated, "fixed-size": FixedSize, "shuffled": Shuffled}
)
"""From a name to a function of the public number of examples and the expected batch size."""


def named_sampler(name: str, *, examples: int, batch_size: int) -> Sampler:
    """The sampler of this name with this expected batch size, for a public number of examples."""
    check_choice("sampler", name, SAMPLERS)
    check_batch_fits(examples, batch_size)
    return SAMPLERS[name](examples, batch_size)
