"""The noise of a whole step: its scale, its independence, and what it must not depend on."""

import random

import numpy as np
import pytest
import torch
from private_checks import (
    check_noise_of_steps,
    check_noise_scale,
    check_uncorrelated,
    cross_entropy,
    flat,
    network,
    no_gradient,
    plan,
    records,
    scale_p_value,
    updates,
)
from torch import nn

from tacit.clipping import Automatic, Flat, PerLayer
from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.mechanisms import step_noise
from tacit.training import Execution, Private


@pytest.mark.parametrize("clipping", [Flat(0.5), PerLayer(0.8), Automatic(1.2)], ids=repr)
def test_pitfall_14_scale_for_every_clipping(clipping):
    check_noise_of_steps(clipping)


@pytest.mark.parametrize(
    "execution",
    [
        {"engine": "reference"},
        {"engine": "functional", "chunk_size": 5},
        {"chunk_size": 1},
        {"chunk_size": 3},
        {"chunk_size": 3, "pad_chunks": True},
        {"chunk_size": 100, "pad_chunks": True},
    ],
    ids=str,
)
def test_pitfall_14_one_noise_a_lot_whatever_chunks_and_engine(execution):
    check_noise_of_steps(**execution)


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_the_scale_is_one_for_every_relation(neighbours):
    """Events state noise over one record's bound; the accountant doubles the sensitivity, not the step."""
    the_plan = plan(steps=30, neighbours=neighbours)
    check_noise_scale(torch.cat([flat(update) for update in updates(the_plan)]), 1.5 * 0.5)


@pytest.mark.parametrize("batch", [1, 4, 16])
def test_the_noise_of_the_sum_does_not_depend_on_the_lot_size(batch):
    the_plan = plan(steps=30, expected_batch_size=batch)
    check_noise_scale(torch.cat([flat(update) for update in updates(the_plan)]), 1.5 * 0.5)


def test_pitfall_38_every_coordinate_has_the_noise_of_all_layers_together():
    the_plan = plan(steps=60, clipping=PerLayer({"0": 0.3, "2": 0.4}))
    found = list(updates(the_plan))
    for name in found[0]:
        noise = torch.cat([update[name].flatten() for update in found])
        assert scale_p_value(noise, 1.5 * 0.5) > 1e-4, name
    weights = torch.cat([update["2.weight"].flatten() for update in found])
    for wrong in (0.3, 0.4):
        assert scale_p_value(weights, 1.5 * wrong) < 1e-8


def test_with_real_gradients_the_noise_is_what_a_run_without_it_lacks():
    """One step on one lot, with and without noise, for many keys: the difference is the noise of the step."""
    noise = []
    for seed in range(30):
        randomness = Randomness(unsafe_seed=seed)
        noisy = next(updates(plan(), loss_fn=cross_entropy, randomness=randomness))
        bare = next(updates(plan(noise_multiplier=0), loss_fn=cross_entropy, randomness=randomness))
        noise.append(flat(noisy) - flat(bare))
        assert float(flat(bare).abs().max()) > 0
    check_noise_scale(torch.cat(noise), 1.5 * 0.5)
    check_uncorrelated(torch.stack(noise))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pitfall_23_the_noise_of_low_precision_models_has_the_full_scale(dtype):
    """The noisy sum itself is float32 at least; the optimizer's rounding comes after it."""
    model, found = network(dtype), []
    for parameter in model.parameters():
        nn.init.zeros_(parameter)  # the first update is not rounded to the grid of a larger number
    private = Private(
        model,
        no_gradient,
        torch.optim.SGD(model.parameters(), lr=1.0),
        plan(steps=30),
        randomness=Randomness(unsafe_seed=1),
        execution=Execution(preflight=False),
    )
    for lot in private.batches(records(dtype=dtype)):
        private.step(lot)
        found.append(torch.cat([p.grad.double().flatten() * 8 for p in model.parameters()]))
    check_noise_scale(torch.cat(found), 1.5 * 0.5)


def test_steps_and_parameters_have_noise_of_their_own():
    class Twins(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 40, bias=False), nn.Linear(8, 40, bias=False)

        def forward(self, x):
            return self.a(x) + self.b(x)

    found = list(updates(plan(steps=20), model=Twins().double()))
    rows = [update[name].flatten() for update in found for name in ("a.weight", "b.weight")]
    check_uncorrelated(torch.stack(rows))
    with pytest.raises(AssertionError):
        check_uncorrelated(torch.stack([*rows[:10], rows[0] + 0.3 * rows[11]]))


def first_noise(randomness):
    return flat(next(updates(plan(), randomness=randomness)))


def test_noise_never_repeats_between_two_runs():
    shared = Randomness()
    runs = [first_noise(Randomness()), first_noise(Randomness()), first_noise(shared), first_noise(shared)]
    assert len({float(run[0]) for run in runs}) == 4
    correlations = np.corrcoef(torch.stack(runs).numpy())[np.triu_indices(4, k=1)]
    assert np.abs(correlations).max() < 0.5  # seven standard deviations, since these runs have no fixed seed


def test_two_runs_of_one_source_draw_different_lots():
    shared = Randomness()
    drawn = []
    for _ in range(2):
        model = network()
        private = Private(model, no_gradient, torch.optim.SGD(model.parameters(), lr=1.0), plan(), randomness=shared)
        lot = next(private.batches(records(1000)))
        drawn.append(set(lot.unsafe_indices.tolist()))
    assert drawn[0] != drawn[1]


def test_pitfall_19_global_seeds_change_nothing():
    def seeded(seed, randomness):
        model = network()
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        return flat(next(updates(plan(), model=model, randomness=randomness)))

    assert not torch.equal(seeded(0, Randomness()), seeded(0, Randomness()))
    assert torch.equal(seeded(0, Randomness(unsafe_seed=3)), seeded(1, Randomness(unsafe_seed=3)))


def test_pitfall_19_a_step_changes_no_global_generator():
    model = network()
    private = Private(model, cross_entropy, torch.optim.SGD(model.parameters(), lr=1.0), plan())
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    for lot in private.batches(records()):
        private.step(lot)
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])
    assert random.getstate() == before[2]


@pytest.mark.parametrize("frozen", ["0.weight", "2.bias"])
def test_pitfall_29_frozen_parameters_get_no_noise(frozen):
    model = network()
    model.get_parameter(frozen).requires_grad_(False)
    before = model.get_parameter(frozen).clone()
    found = list(updates(plan(steps=30), model=model))
    assert torch.equal(model.get_parameter(frozen), before)
    rest = torch.cat([update[name].flatten() for update in found for name in update if name != frozen])
    check_noise_scale(rest, 1.5 * 0.5)


def test_pitfall_29_left_over_gradients_move_no_frozen_parameter():
    """A backward pass on raw data, such as a warm-up, leaves gradients; freezing the layer does not remove them."""
    model, (x, y) = network(), records()
    cross_entropy(model, x, y).sum().backward()
    model[0].requires_grad_(False)
    assert model[0].weight.grad is not None
    before = model[0].weight.clone()
    list(updates(plan(), loss_fn=cross_entropy, model=model))
    assert torch.equal(model[0].weight, before)
    assert model[0].weight.grad is None


def test_pitfall_30_an_unused_parameter_gets_noise():
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(8, 4), nn.Linear(50, 20)

        def forward(self, x):
            return self.used(x)

    found = list(updates(plan(), loss_fn=cross_entropy, model=Unused().double()))
    check_noise_scale(torch.cat([update["unused.weight"].flatten() for update in found]), 1.5 * 0.5)


@pytest.mark.parametrize("count", [15, 16, 17])
def test_pitfall_01_the_divisor_does_not_know_the_data(count, monkeypatch):
    """A record more or fewer: what the noisy sum is divided by is the same bits."""
    monkeypatch.setattr(step_noise, "add_normal_", lambda values, scale, key, nonce: values.fill_(1.0))
    model = network()
    private = Private(
        model, cross_entropy, torch.optim.SGD(model.parameters(), lr=1.0), plan(), randomness=Randomness(unsafe_seed=2)
    )
    sizes = set()
    for lot in private.batches(records(count)):
        private.step(lot)
        sizes.add(len(lot.unsafe_indices))
        for parameter in model.parameters():
            assert bool((parameter.grad == torch.tensor(1.0, dtype=torch.float64) / 8).all())
    assert len(sizes) > 1


def test_pitfalls_03_and_04_empty_lots_are_ordinary_steps():
    """Two records at a rate of one in ten thousand: nearly all lots are empty, and each has its noise."""
    the_plan = plan(examples=10_000, expected_batch_size=1, steps=40)
    found = list(updates(the_plan, loss_fn=cross_entropy, data=records(2)))
    assert len(found) == 40
    check_noise_scale(torch.cat([flat(update) for update in found]), 1.5 * 0.5)
    check_uncorrelated(torch.stack([flat(update) for update in found]))


def test_pitfall_04_no_records_at_all_are_noise_alone():
    x, y = records()
    found = list(updates(plan(steps=30), loss_fn=cross_entropy, data=(x[:0], y[:0])))
    check_noise_scale(torch.cat([flat(update) for update in found]), 1.5 * 0.5)
