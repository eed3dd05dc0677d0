"""Pitfall 40 in the small: every check passes on the real thing and fails on the bug that it is there for."""

import numpy as np
import private_checks as checks
import pytest
import torch

from tacit.clipping import Automatic, Flat, PerLayer
from tacit.core.errors import InputError
from tacit.gradients import ClippedGrad, ClippedSum, clipped_sum, contributions, engines
from tacit.mechanisms import Gaussian
from tacit.sampling import Poisson
from tacit.training import private as private_module
from tacit.training import step as step_module

real_noise = Gaussian._noise
real_gradient = step_module.private_gradient
real_call = ClippedGrad.__call__
real_indices = Poisson.indices
real_group_norms = clipped_sum.group_norms
real_left_products = contributions._left_products


def noise_missing(patch):
    patch.setattr(Gaussian, "_noise", lambda self, like, stream: torch.zeros_like(like))


def noise_halved(patch):
    patch.setattr(Gaussian, "_noise", lambda self, like, stream: real_noise(self, like, stream) / 2)


def noise_a_tenth_too_small(patch):
    patch.setattr(Gaussian, "_noise", lambda self, like, stream: real_noise(self, like, stream) * 0.9)


def noise_repeated(patch):
    """One stream for every step."""

    def same_stream(grad, chunks, plan, reservation, randomness, step):
        class Stuck:
            def stream(self, kind, number, *rest):
                return randomness.stream(kind, 0, *rest)

        return real_gradient(grad, chunks, plan, reservation, Stuck(), step)

    patch.setattr(private_module, "private_gradient", same_stream)


def noise_for_every_chunk(patch):
    def noisy_call(self, *batch, mask=None):
        out = real_call(self, *batch, mask=mask)
        mechanism = Gaussian(1.5, self.clipping.bind(list(out.grads)).total)
        stream = np.random.default_rng(5)
        return ClippedSum({name: mechanism.add_noise(g, stream) for name, g in out.grads.items()}, out.unsafe_norms)

    patch.setattr(ClippedGrad, "__call__", noisy_call)


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
    def apart(first, second):
        products = real_left_products(first, second)
        return products * torch.eye(products.shape[-1], dtype=products.dtype) if first.one_hot else products

    patch.setattr(contributions, "_left_products", apart)


def divisor_of_the_realised_lot(patch):
    def divided(grad, chunks, plan, reservation, randomness, step):
        chunks = list(chunks)
        realised = max(1, sum(len(batch[0]) for batch, _ in chunks))
        found = real_gradient(grad, chunks, plan, reservation, randomness, step)
        return {name: value * plan.expected_batch_size / realised for name, value in found.items()}

    patch.setattr(private_module, "private_gradient", divided)


def fake_example_in_an_empty_lot(patch):
    def never_empty(self, step, examples, randomness):
        drawn = real_indices(self, step, examples, randomness)
        return drawn if len(drawn) else np.zeros(1, dtype=np.int64)

    patch.setattr(Poisson, "indices", never_empty)


def infinities_multiplied_away(patch):
    patch.setattr(contributions.ParameterGradients, "keep", lambda self, finite: self)


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
