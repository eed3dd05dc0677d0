"""Augmented data sets, and several views of an example as one gradient."""

import numpy as np
import pytest
import torch
from private_checks import check_noise_scale, cross_entropy, network, no_gradient, plan, records
from torch import nn

from tacit.clipping import Flat
from tacit.core.errors import InputError, UnsupportedError
from tacit.core.randomness import Randomness
from tacit.gradients import clipped_grad
from tacit.training import Augmented, Execution, Private, fit, over_views


def shifted(x, y):
    """Three views, a fixed step apart."""
    return torch.stack([x + step for step in (-0.5, 0.0, 0.5)], dim=1), y


def images(count=6):
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(count, 3, 2, 5, 5, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, 4, (count,), generator=generator)


def convolutional():
    torch.manual_seed(0)
    layers = (nn.Conv2d(2, 3, 3, padding=1), nn.GroupNorm(3, 3), nn.Tanh(), nn.Conv2d(3, 4, 3), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(36, 4)).double()


def test_views_are_averaged_before_they_are_clipped():
    model, (x, y) = network(), records(5)
    inputs, _ = shifted(x, y)
    found = clipped_grad(model, over_views(cross_entropy), clipping=Flat(0.3))(inputs, y)
    total = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for views, label in zip(inputs, y, strict=True):
        loss = cross_entropy(model, views, label.expand(3)).mean()
        grads = torch.autograd.grad(loss, list(model.parameters()))
        norm = torch.cat([grad.flatten() for grad in grads]).norm()
        for value, grad in zip(total.values(), grads, strict=True):
            value += grad * min(1.0, 0.3 / float(norm))
    for name, value in total.items():
        torch.testing.assert_close(found.grads[name], value)


@pytest.mark.parametrize("strategy", [None, "keep-kernel", "tile"])
def test_convolutions_over_views_equal_the_reference(strategy):
    model, (x, y) = convolutional(), images()
    arguments = (model, over_views(cross_entropy))
    expected = clipped_grad(*arguments, clipping=Flat(0.2), engine="reference")(x, y)
    found = clipped_grad(*arguments, clipping=Flat(0.2), engine="bookkeeping", strategy=strategy)(x, y)
    for name, value in expected.grads.items():
        torch.testing.assert_close(found.grads[name], value, rtol=1e-6, atol=1e-9)


def test_an_example_counts_once_however_many_views_it_has():
    model, (x, y) = network(), records(4)
    many = x[:, None].expand(-1, 50, -1) * 100
    for i in range(4):
        sums = clipped_grad(model, over_views(cross_entropy), clipping=Flat(0.5))(many[i : i + 1], y[i : i + 1])
        assert sum(float(value.square().sum()) for value in sums.grads.values()) ** 0.5 <= 0.5 * (1 + 1e-12)


def test_the_loss_sees_augmented_batches_and_the_sampler_does_not():
    seen = []

    def watched(model, x, y):
        seen.append(tuple(x.shape[1:]))
        return over_views(cross_entropy)(model, x, y)

    model = network()
    private = Private(model, watched, torch.optim.SGD(model.parameters(), lr=0.1), plan())
    sizes = []
    for lot in private.batches(Augmented(records(), shifted)):
        sizes.append(len(lot.unsafe_indices))
        private.step(lot)
    assert set(seen) == {(3, 8)}
    assert max(sizes) <= 16


def test_augmentation_gives_the_step_of_the_augmented_records():
    def run(train_set, loss_fn):
        model = network()
        fit(
            model,
            loss_fn,
            train_set,
            plan(),
            optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
            randomness=Randomness(unsafe_seed=5),
            execution=Execution(chunk_size=3),
        )
        return model.state_dict()

    on_the_way = run(Augmented(records(), shifted), over_views(cross_entropy))
    beforehand = run(shifted(*records()), over_views(cross_entropy))
    for name, value in beforehand.items():
        torch.testing.assert_close(on_the_way[name], value)


def test_the_noise_is_that_of_the_plan():
    model = network()
    private = Private(model, over_views(no_gradient), torch.optim.SGD(model.parameters(), lr=1.0), plan(steps=40))
    noise = []
    for lot in private.batches(Augmented(records(), shifted)):
        private.step(lot)
        noise.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]) * 8)
    check_noise_scale(torch.cat(noise), 1.5 * 0.5)


def test_bad_input_is_named():
    model = network()

    def private():
        return Private(model, over_views(cross_entropy), torch.optim.SGD(model.parameters(), lr=0.1), plan())

    run = private()
    lot = next(run.batches(Augmented(records(), lambda x, y: (x.repeat(2, 1), y.repeat(2)))))
    with pytest.raises(InputError, match=r"augment: made .* examples of .* second dimension"):
        run.step(lot)
    with pytest.raises(InputError, match=r"inputs=\(4,\).*must be \[examples, views"):
        over_views(cross_entropy)(model, torch.zeros(4), torch.zeros(4))
    with pytest.raises(UnsupportedError, match="has no length"):
        next(private().batches(Augmented(iter([]), shifted)))
    assert len(Augmented(np.zeros(3), shifted)) == 3
