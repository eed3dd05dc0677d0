"""Pitfall 40 in the small: every check passes on the real thing and fails on the bug that it is there for."""

import numpy as np
import private_checks as checks
import pytest
import torch

from tacit.clipping import Automatic, Flat, PerLayer
from tacit.core.errors import InputError
from tacit.gradients import ClippedGrad, clipped_sum, engines, parameter_gradients, ways
from tacit.mechanisms import Gaussian, StepNoise, step_noise
from tacit.sampling import Poisson

real_add = step_noise.add_normal_
real_apply = StepNoise.apply_
real_run = ClippedGrad._run
real_accumulate = ClippedGrad.accumulate
real_indices = Poisson.indices
real_group_norms = clipped_sum.group_norms
real_measure_group = ways._measure_group


def scaled_noise(patch, factor):
    patch.setattr(
        step_noise, "add_normal_", lambda values, scale, key, nonce: real_add(values, scale * factor, key, nonce)
    )


def noise_missing(patch):
    scaled_noise(patch, 0.0)


def noise_halved(patch):
    scaled_noise(patch, 0.5)


def noise_a_tenth_too_small(patch):
    scaled_noise(patch, 0.9)


def noise_repeated(patch):
    """One key for every step."""
    patch.setattr(StepNoise, "apply_", lambda self, sums, randomness, step: real_apply(self, sums, randomness, 0))


def noise_for_every_chunk(patch):
    def noisy_run(self, batch, mask):
        found, norms = real_run(self, batch, mask)
        mechanism = Gaussian(1.5, self.clipping.bind(list(found)).total)
        stream = np.random.default_rng(5)
        return {name: mechanism.add_noise(g, stream) for name, g in found.items()}, norms

    patch.setattr(ClippedGrad, "_run", noisy_run)


def noise_by_each_layers_own_bound(patch):
    patch.setattr(ClippedGrad, "sensitivity", lambda self, neighbours: max(self._bound.bounds))


def clipping_off(patch):
    def no_factors(norms, bound, mask):
        return torch.where(mask[:, None], torch.ones_like(norms), torch.zeros_like(norms))

    patch.setattr(clipped_sum, "clip_factors", no_factors)
    patch.setattr(engines, "clip_factors", no_factors)


def bias_left_out_of_the_norm(patch):
    def without_biases(squared, bound, examples, device):
        weights = {name: value for name, value in squared.items() if not name.endswith("bias")}
        return real_group_norms(weights, bound, examples, device)

    patch.setattr(clipped_sum, "group_norms", without_biases)
    patch.setattr(engines, "group_norms", without_biases)


def equal_words_not_accumulated(patch):
    def apart(use):
        squared = use.right.double().square().sum((1, 2, 3))
        return ways.Measured(squared, real_measure_group(use).source)

    patch.setitem(ways.ONE_HOT_WAYS, "group", ways.Way(apart, ways.ONE_HOT_WAYS["group"].cost))


def divisor_of_the_realised_lot(patch):
    realised = 1

    def counted(self, chunks):
        nonlocal realised
        chunks = list(chunks)
        realised = max(1, sum(len(batch.index) for batch, _ in chunks))
        return real_accumulate(self, chunks)

    def divided(self, sums, randomness, step):
        real_apply(self, sums, randomness, step)
        for value in sums.values():
            value.mul_(self._divisor / realised)

    patch.setattr(ClippedGrad, "accumulate", counted)
    patch.setattr(StepNoise, "apply_", divided)


def fake_example_in_an_empty_lot(patch):
    def never_empty(self, step, examples, randomness):
        drawn = real_indices(self, step, examples, randomness)
        return drawn if len(drawn) else np.zeros(1, dtype=np.int64)

    patch.setattr(Poisson, "indices", never_empty)


def infinities_multiplied_away(patch):
    real = parameter_gradients.ParameterGradients.weighted_sum
    patch.setattr(parameter_gradients.ParameterGradients, "weighted_sum", lambda self, w, finite: real(self, w))


CHECKS = {
    "noise": checks.check_noise_of_steps,
    "noise in chunks": lambda: checks.check_noise_of_steps(chunk_size=3),
    "noise for all layers": checks.check_noise_is_one_scale_for_all_layers,
    "large gradient": checks.check_contribution_of_a_large_gradient,
    "large bias": checks.check_contribution_of_a_large_bias,
    "equal words": checks.check_contribution_of_equal_words,
    "divisor": checks.check_divisor_is_public,
    "empty lots": checks.check_empty_lots_are_zero,
    "not finite": checks.check_a_record_that_is_not_finite_counts_for_nothing,
}

PLANTED = [
    (noise_missing, "noise"),
    (noise_halved, "noise"),
    (noise_a_tenth_too_small, "noise"),
    (noise_repeated, "noise"),
    (noise_for_every_chunk, "noise in chunks"),
    (noise_by_each_layers_own_bound, "noise for all layers"),
    (clipping_off, "large gradient"),
    (bias_left_out_of_the_norm, "large bias"),
    (equal_words_not_accumulated, "equal words"),
    (divisor_of_the_realised_lot, "divisor"),
    (fake_example_in_an_empty_lot, "empty lots"),
    (infinities_multiplied_away, "not finite"),
]


@pytest.mark.parametrize("name", CHECKS)
def test_the_real_thing_passes(name):
    CHECKS[name]()


@pytest.mark.parametrize(("bug", "name"), PLANTED, ids=lambda value: getattr(value, "__name__", value))
def test_pitfall_40_a_planted_bug_is_caught(bug, name, monkeypatch):
    bug(monkeypatch)
    with pytest.raises((AssertionError, InputError)):
        CHECKS[name]()


@pytest.mark.parametrize("clipping", [Flat(2.0), PerLayer(0.7), Automatic(0.3)], ids=repr)
def test_every_clipping_passes_the_noise_check(clipping):
    checks.check_noise_of_steps(clipping)
