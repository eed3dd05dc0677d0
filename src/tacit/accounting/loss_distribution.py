r"""Accounting by privacy loss distributions: the default, and the tightest bound here.

Each event has a dominating pair of distributions; the loss of a composition is the sum of the losses, and the whole
curve delta(epsilon) follows (Sommer, Meiser and Mohammadi 2019; Koskela, Jälkö and Honkela 2020). Both directions, a
record added and a record removed, are computed, and the larger epsilon counts. Plain Gaussians compose to one Gaussian,
which is accounted exactly.

Noise that is tiny beside what it hides has losses of many thousands, for which the grid grows too coarse. There the
bound by the number of inclusions is closer (`tacit.accounting.inclusions`), and the lower of both counts.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence

from dp_accounting import DpEvent

from tacit.accounting import dominating
from tacit.accounting.conversion import gaussian_delta, gaussian_epsilon
from tacit.accounting.dominating import DominatingPair
from tacit.accounting.event_pairs import dominating_pair
from tacit.accounting.events import SampledGaussian, as_sampled_gaussian, event_key, flatten
from tacit.accounting.inclusions import Inclusions
from tacit.accounting.privacy_curve import PrivacyCurve
from tacit.accounting.relations import contributions_moved
from tacit.core.errors import UnsupportedError
from tacit.core.privacy import Neighbours

_LARGE = 100.0  # epsilons from which on the bound by inclusions may be the lower one
_REMEMBERED = 4096  # answers, a few hundred bytes each


@dataclasses.dataclass(frozen=True)
class _Composition:
    """The parts of an event with how often each occurs, under a relation; the same question as any with its key.

    It holds the parts themselves, so that an event which its key knows by its address lives as long as the key.
    """

    key: tuple[tuple[str, int], ...]
    neighbours: Neighbours
    accountant: str
    parts: tuple[tuple[DpEvent, int], ...] = dataclasses.field(compare=False, repr=False)

    @classmethod
    def of(cls, event: DpEvent, neighbours: Neighbours, accountant: str) -> "_Composition":
        parts = tuple(flatten(event))
        return cls(tuple((event_key(leaf), count) for leaf, count in parts), neighbours, accountant, parts)


@dataclasses.dataclass(frozen=True)
class _Losses:
    """A composition as one Gaussian (infinite noise: none) and dominating pairs; or not private at all."""

    gaussian_noise: float
    pairs: tuple[DominatingPair, ...]
    counts: tuple[int, ...]
    is_private: bool
    inclusions: tuple[Inclusions, ...]

    @property
    def is_exact(self) -> bool:
        """Whether a closed form gives epsilon and delta."""
        return not self.is_private or not self.pairs

    def exact_epsilon(self, delta: float) -> float:
        if not self.is_private:
            return math.inf
        return 0.0 if self.gaussian_noise == math.inf else gaussian_epsilon(self.gaussian_noise, delta)

    def exact_delta(self, epsilon: float) -> float:
        if not self.is_private:
            return 1.0
        return 0.0 if self.gaussian_noise == math.inf else gaussian_delta(self.gaussian_noise, epsilon)

    def lower_epsilon(self, found: float, delta: float) -> float:
        """The bound that was found, or that by inclusions where it is lower; several kinds of noise add up."""
        if found < _LARGE or self.is_exact or not self.inclusions:
            return found
        return min(found, sum(kind.epsilon(delta / len(self.inclusions)) for kind in self.inclusions))

    def removed(self) -> PrivacyCurve:
        """The curve for a record removed."""
        if self.gaussian_noise == math.inf:
            return PrivacyCurve(self.pairs, self.counts)
        return PrivacyCurve((*self.pairs, dominating.gaussian(self.gaussian_noise)), (*self.counts, 1))

    def added(self) -> PrivacyCurve | None:
        """The curve for a record added, where it differs."""
        removed = self.removed()
        if all(pair.is_symmetric for pair in removed.pairs):
            return None
        return PrivacyCurve(tuple(pair.reversed() for pair in removed.pairs), removed.counts)


@dataclasses.dataclass(frozen=True)
class LossDistributionAccountant:
    """Certified upper bounds from privacy loss distributions, within about 0.02 % of epsilon where that is below 100.

    Knows Gaussian, Laplace and discrete Laplace noise, each with or without Poisson sampling, truncated Poisson
    sampling, mixtures of Gaussians and randomised response, and every composition of these. Under replace-one a
    sampled mechanism must be Gaussian.
    """

    name: str = "pld"
    is_upper_bound: bool = True

    def supports(self, event: DpEvent, neighbours: Neighbours) -> bool:
        try:
            self._losses(event, neighbours)
        except UnsupportedError:
            return False
        return True

    def epsilon(self, event: DpEvent, delta: float, neighbours: Neighbours, *, stop_above: float = math.inf) -> float:
        """Epsilon at delta. Where it is above ``stop_above``, any lower bound above that. Answers are remembered."""
        composition = _Composition.of(event, neighbours, self.name)
        removed = _epsilon_removed(composition, delta)
        return removed if removed > stop_above else _epsilon(composition, delta)

    def delta(self, event: DpEvent, epsilon: float, neighbours: Neighbours) -> float:
        """Delta at epsilon. Answers are remembered."""
        return _delta(_Composition.of(event, neighbours, self.name), epsilon)

    def estimate(self, event: DpEvent, delta: float, neighbours: Neighbours) -> float:
        """About what `epsilon` says, in a fraction of its time and without its guarantee."""
        losses = self._losses(event, neighbours)
        return losses.exact_epsilon(delta) if losses.is_exact else losses.removed().estimated_epsilon(delta)

    def _losses(self, event: DpEvent, neighbours: Neighbours) -> _Losses:
        return _losses(_Composition.of(event, neighbours, self.name))


@functools.lru_cache(maxsize=64)
def _losses(composition: _Composition) -> _Losses:
    precision, is_private = 0.0, True
    pairs, counts, sampled = [], [], []
    for leaf, count in composition.parts:
        plain = as_sampled_gaussian(leaf, count)
        if plain is not None and plain.sampling_rate == 1 and plain.noise_multiplier > 0:
            precision += count * (contributions_moved(composition.neighbours) / plain.noise_multiplier) ** 2
            continue
        pair = dominating_pair(leaf, composition.neighbours, composition.accountant)
        if pair is dominating.NOT_PRIVATE:
            is_private = False
        elif pair is not dominating.NO_LOSS:
            pairs.append(pair)
            counts.append(count)
            sampled.append(plain)
    noise = math.inf if precision == 0 else precision**-0.5
    inclusions = _inclusions(sampled, counts, precision, contributions_moved(composition.neighbours))
    return _Losses(noise, tuple(pairs), tuple(counts), is_private, inclusions)


def _inclusions(
    sampled: Sequence[SampledGaussian | None], counts: Sequence[int], always: float, moved: int
) -> tuple[Inclusions, ...]:
    """One for each kind, the first with what is on all records; none where anything else is among them."""
    found: list[Inclusions] = []
    for kind, count in zip(sampled, counts, strict=True):
        if kind is None or kind.noise_multiplier == 0:
            return ()
        precision = (moved / kind.noise_multiplier) ** 2
        found.append(Inclusions(count, kind.sampling_rate, precision, 0.0 if found else always))
    return tuple(found)


@functools.lru_cache(maxsize=_REMEMBERED)
def _epsilon_removed(composition: _Composition, delta: float) -> float:
    losses = _losses(composition)
    found = losses.exact_epsilon(delta) if losses.is_exact else losses.removed().epsilon(delta)
    return losses.lower_epsilon(found, delta)


@functools.lru_cache(maxsize=_REMEMBERED)
def _epsilon(composition: _Composition, delta: float) -> float:
    losses = _losses(composition)
    removed = _epsilon_removed(composition, delta)
    added = None if losses.is_exact else losses.added()
    # Only the larger of both counts, so a rough bound on the second that lies below the first will do.
    if added is None:
        return removed
    return losses.lower_epsilon(max(removed, added.epsilon(delta, enough=removed)), delta)


@functools.lru_cache(maxsize=_REMEMBERED)
def _delta(composition: _Composition, epsilon: float) -> float:
    losses = _losses(composition)
    if losses.is_exact:
        return losses.exact_delta(epsilon)
    found = max(curve.delta(epsilon) for curve in (losses.removed(), losses.added()) if curve is not None)
    if epsilon < _LARGE or len(losses.inclusions) != 1:
        return found
    return min(found, losses.inclusions[0].delta(epsilon))
