"""Broken copies of the mechanism, made by patching the library. Not a test file itself.

Each is a bug that some privacy library had, or that is easily written. ``MUTANTS`` says on which subject it shows, and
which judges must accuse it.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from subjects import RECORDS

from tacit.core.randomness import Randomness
from tacit.gradients import ClippedGrad, clipped_sum, engines, parameter_gradients, ways
from tacit.mechanisms import StepNoise, step_noise
from tacit.plan import DPSGD
from tacit.sampling import Poisson, Shuffled
from tacit.training import resume


class Planter:
    """Replaces functions of the library by broken ones, and counts how often each of these was called.

    A place that does not exist is an error, and one that is never called shows in ``unused``.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._calls: dict[str, int] = {}

    @property
    def unused(self) -> list[str]:
        return [place for place, calls in self._calls.items() if not calls]

    def replace(self, owner: Any, name: str, broken: Callable[..., Any], *, also: tuple[Any, ...] = ()) -> None:
        """``broken`` gets the real function first, then its arguments; ``also`` has it under the same name."""
        real = getattr(owner, name)
        place = f"{owner.__name__}.{name}"
        self._calls[place] = 0

        def counted(*arguments: Any, **options: Any) -> Any:
            self._calls[place] += 1
            return broken(real, *arguments, **options)

        for each in (owner, *also):
            assert getattr(each, name) is real, f"{each.__name__}.{name} is another function"
            self._patch.setattr(each, name, counted)


def _lot_size(planter: Planter) -> Callable[[], int]:
    """How many records the last lot held, and 1 for none."""
    drawn = 1

    def count(real, self, chunks):
        nonlocal drawn
        chunks = list(chunks)
        drawn = max(1, sum(len(batch.index) for batch, _ in chunks))
        return real(self, chunks)

    planter.replace(ClippedGrad, "accumulate", count)
    return lambda: drawn


# Noise


def _noise_times(factor: float) -> Callable[[Planter], None]:
    def plant(planter: Planter) -> None:
        def add(real, values, scale, key, nonce):
            real(values, factor * scale, key, nonce)

        planter.replace(step_noise, "add_normal_", add)

    return plant


def noise_over_the_lot(planter: Planter) -> None:
    """The noise is divided by how many records were drawn, beside the division by L."""
    lot_size = _lot_size(planter)
    planter.replace(
        step_noise, "add_normal_", lambda real, values, scale, *rest: real(values, scale / lot_size(), *rest)
    )


def noise_for_every_chunk(planter: Planter) -> None:
    """Accumulation that adds noise to each part."""
    stream = np.random.default_rng()

    def noisy(real, self, batch, mask):
        sums, norms = real(self, batch, mask)
        scale = 1.5 * self._bound.total
        return {name: g + scale * torch.from_numpy(stream.standard_normal(g.shape)) for name, g in sums.items()}, norms

    planter.replace(ClippedGrad, "_run", noisy)


def noise_missing_in_chunked_lots(planter: Planter) -> None:
    """A flag says that a later chunk will add the noise, and is never taken back."""
    several = False

    def count(real, self, chunks):
        nonlocal several
        chunks = list(chunks)
        several = len(chunks) > 1
        return real(self, chunks)

    def add(real, values, scale, key, nonce):
        real(values, 0.0 if several else scale, key, nonce)

    planter.replace(ClippedGrad, "accumulate", count)
    planter.replace(step_noise, "add_normal_", add)


def noise_skipped_on_an_empty_lot(planter: Planter) -> None:
    def apply(real, self, sums, randomness, step):
        if any(bool(value.any()) for value in sums.values()):
            real(self, sums, randomness, step)

    planter.replace(StepNoise, "apply_", apply)


def noise_by_each_layers_own_bound(planter: Planter) -> None:
    planter.replace(ClippedGrad, "sensitivity", lambda real, self, neighbours: max(self._bound.bounds))


def biases_without_noise(planter: Planter) -> None:
    def add(real, values, scale, key, nonce):
        real(values, scale if values.dim() > 1 else 0.0, key, nonce)

    planter.replace(step_noise, "add_normal_", add)


def one_noise_for_all_parameters(planter: Planter) -> None:
    planter.replace(step_noise, "nonces_for", lambda real, names: dict.fromkeys(names, (0, 0, 0)))


def one_noise_for_all_steps(planter: Planter) -> None:
    planter.replace(StepNoise, "apply_", lambda real, self, sums, randomness, step: real(self, sums, randomness, 0))


def uniform_noise(planter: Planter) -> None:
    """Of the right variance."""
    stream = np.random.default_rng()

    def add(real, values, scale, key, nonce):
        values += torch.from_numpy(stream.uniform(-1, 1, values.shape)) * scale * math.sqrt(3)

    planter.replace(step_noise, "add_normal_", add)


def noise_from_torchs_generator(planter: Planter) -> None:
    def add(real, values, scale, key, nonce):
        values += scale * torch.randn_like(values)

    planter.replace(step_noise, "add_normal_", add)


def runs_share_their_source(planter: Planter) -> None:
    planter.replace(Randomness, "fork", lambda real, self, **options: self)


# Clipping


def _no_factors(real, norms, bound, mask):
    return torch.where(mask[:, None], torch.ones_like(norms), torch.zeros_like(norms))


def clipping_off(planter: Planter) -> None:
    planter.replace(clipped_sum, "clip_factors", _no_factors, also=(engines,))  # or the preflight would see it


def clipping_the_mean(planter: Planter) -> None:
    """The mean gradient of a chunk is clipped, as if it were one record's, and counted for each."""

    def mean(real, grads, bound, mask, strategies):
        count = max(1, int(mask.sum()))
        whole = {name: each.weighted_sum(mask.double() / count) for name, each in grads.items()}
        norm = torch.cat([value.flatten() for value in whole.values()]).norm()
        factor = min(1.0, bound.total / float(norm)) * count
        return {name: factor * value for name, value in whole.items()}, torch.zeros(len(mask), len(bound.groups))

    planter.replace(engines, "sum_clipped", mean)


def norms_without_the_bias(planter: Planter) -> None:
    def norms(real, squared, bound, examples, device):
        weights = {name: value for name, value in squared.items() if not name.endswith("bias")}
        return real(weights, bound, examples, device)

    planter.replace(clipped_sum, "group_norms", norms)


def equal_words_not_added_up(planter: Planter) -> None:
    """The norm of an embedding's gradient, as if no word came twice."""

    def measure(real, self, use):
        if not getattr(use, "one_hot", False):
            return real(self, use)
        return ways.Measured(use.right.double().square().sum((1, 2, 3)), use)

    planter.replace(parameter_gradients.Strategies, "measure", measure)


def tied_norm_without_cross_terms(planter: Planter) -> None:
    def apart(real, outers):
        return sum(real([outer]) for outer in outers)

    planter.replace(parameter_gradients, "measure_several", apart)


def infinities_multiplied_away(planter: Planter) -> None:
    planter.replace(
        parameter_gradients.ParameterGradients, "weighted_sum", lambda real, self, weights, finite: real(self, weights)
    )


def padding_counted(planter: Planter) -> None:
    planter.replace(
        clipped_sum, "clip_factors", lambda real, norms, bound, mask: real(norms, bound, torch.ones_like(mask))
    )


def divisor_of_the_lot(planter: Planter) -> None:
    """The released mean is over the records that were drawn."""
    lot_size = _lot_size(planter)

    def divide(real, self, sums, randomness, step):
        real(self, sums, randomness, step)
        for value in sums.values():
            value *= self._divisor / lot_size()

    planter.replace(StepNoise, "apply_", divide)


def fake_record_in_an_empty_lot(planter: Planter) -> None:
    """Something to compute with, whose gradient is then added: as far from a real one as can be."""
    last: dict[str, torch.Tensor] = {}

    def never_empty(real, self, chunks):
        chunks = list(chunks)
        sums = real(self, chunks)
        if chunks:
            last.update({name: value.clone() for name, value in sums.items()})
            return sums
        norm = math.sqrt(sum(float(value.square().sum()) for value in last.values())) or 1.0
        return {name: -self._bound.total / norm * last.get(name, value) for name, value in sums.items()}

    planter.replace(ClippedGrad, "accumulate", never_empty)


# Sampling and accounting


def shuffled_accounted_as_poisson(planter: Planter) -> None:
    def event(real, self, noise_multiplier, steps, neighbours):
        return Poisson(self.batch_size / self.examples).event(noise_multiplier, steps, neighbours)

    planter.replace(Shuffled, "event", event)


def poisson_draws_shuffled_lots(planter: Planter) -> None:
    def indices(real, self, step, examples, randomness):
        return Shuffled(examples, round(self.sampling_rate * examples)).indices(step, examples, randomness)

    planter.replace(Poisson, "indices", indices)


def lots_drawn_again_until_they_hold_a_record(planter: Planter) -> None:
    planter.replace(Poisson, "size", lambda real, *arguments: max(1, real(*arguments)))


def rate_of_the_real_data_set(planter: Planter) -> None:
    """The lot has its expected size whatever the data: the rate tells how many records there are."""
    planter.replace(
        Poisson,
        "size",
        lambda real, self, step, examples, randomness: real(
            Poisson(min(1.0, RECORDS / 2 / examples)), step, examples, randomness
        ),
    )


def last_step_not_counted(planter: Planter) -> None:
    planter.replace(
        DPSGD,
        "statement",
        lambda real, self, steps=None, **options: real(self, (self.steps if steps is None else steps) - 1, **options),
    )


# Resuming


def seed_reused_after_resume(planter: Planter) -> None:
    """The key is restored and the count of steps is not: the streams begin again."""

    def restart(real, self, header, *rest):
        position = real(self, header, *rest)
        if header.step:
            reservation = resume.Paid(self._facts.plan.steps, done=0, begun=0)
            position = dataclasses.replace(position, first=header.step, reservation=reservation, before_noise=None)
        return position

    planter.replace(resume.Session, "_open", restart)


def other_data_taken_up(planter: Planter) -> None:
    """Neither the fingerprint nor the witness looks."""
    planter.replace(resume.Session, "_check_same_run", lambda real, self, header, source: True)
    planter.replace(resume.Witness, "__call__", lambda real, self, step, sums: None)


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A bug, a run on which it shows, and the judges that must accuse it there."""

    plant: Callable[[Planter], None]
    subject: str
    judges: tuple[str, ...]


MUTANTS: dict[str, Mutant] = {
    "no noise": Mutant(_noise_times(0.0), "usual", ("noise", "canaries")),
    "noise of 0.5": Mutant(_noise_times(0.5), "usual", ("noise", "canaries")),
    "noise of 0.8": Mutant(_noise_times(0.8), "usual", ("noise", "canaries")),
    "noise of 0.9": Mutant(_noise_times(0.9), "usual", ("noise",)),
    "noise of 1.1": Mutant(_noise_times(1.1), "usual", ("noise",)),
    "noise over the lot": Mutant(noise_over_the_lot, "usual", ("noise", "canaries")),
    "noise for every chunk": Mutant(noise_for_every_chunk, "in chunks", ("noise",)),
    "noise missing in chunked lots": Mutant(noise_missing_in_chunked_lots, "in chunks", ("noise",)),
    "noise skipped on an empty lot": Mutant(noise_skipped_on_an_empty_lot, "sparse", ("noise",)),
    "noise by each layer's own bound": Mutant(noise_by_each_layers_own_bound, "per layer", ("noise",)),
    "biases without noise": Mutant(biases_without_noise, "usual", ("noise",)),
    "one noise for all parameters": Mutant(one_noise_for_all_parameters, "usual", ("noise",)),
    "one noise for all steps": Mutant(one_noise_for_all_steps, "usual", ("noise", "reuse")),
    "uniform noise": Mutant(uniform_noise, "usual", ("noise",)),
    "noise from torch's generator": Mutant(noise_from_torchs_generator, "usual", ("reuse",)),
    "runs share their source": Mutant(runs_share_their_source, "usual", ("reuse",)),
    "clipping off": Mutant(clipping_off, "usual", ("sensitivity", "canaries")),
    "clipping the mean": Mutant(clipping_the_mean, "functional", ("sensitivity",)),
    "norms without the bias": Mutant(norms_without_the_bias, "usual", ("sensitivity",)),
    "equal words not added up": Mutant(equal_words_not_added_up, "words", ("sensitivity",)),
    "tied norm without cross terms": Mutant(tied_norm_without_cross_terms, "tied", ("sensitivity",)),
    "infinities multiplied away": Mutant(infinities_multiplied_away, "usual", ("sensitivity",)),
    "padding counted": Mutant(padding_counted, "in padded chunks", ("sensitivity",)),
    "divisor of the lot": Mutant(divisor_of_the_lot, "usual", ("sensitivity",)),
    "fake record in an empty lot": Mutant(fake_record_in_an_empty_lot, "usual", ("sensitivity",)),
    "shuffled accounted as Poisson": Mutant(shuffled_accounted_as_poisson, "shuffled", ("event",)),
    "Poisson draws shuffled lots": Mutant(poisson_draws_shuffled_lots, "usual", ("event",)),
    "no empty lots": Mutant(lots_drawn_again_until_they_hold_a_record, "sparse", ("event",)),
    "rate of the real data set": Mutant(rate_of_the_real_data_set, "more records than declared", ("event",)),
    "last step not counted": Mutant(last_step_not_counted, "usual", ("event",)),
    "seed reused after resume": Mutant(seed_reused_after_resume, "usual", ("resume",)),
    "other data taken up": Mutant(other_data_taken_up, "usual", ("resume",)),
}
