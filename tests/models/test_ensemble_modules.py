"""Ensembles as modules: the mean of what members say, and modules made anew from what was saved of them."""

import math

import pytest
import torch
from torch import nn

from tacit.core.errors import InputError
from tacit.models import (
    FIXED_FEATURES,
    FixedFeatures,
    MeanOfProbabilities,
    PublicMap,
    Upright,
    balanced_scattering,
    build,
    ensemble_of_weights,
    first_network,
    has_perceptrons,
    networks_and_perceptrons,
    perceptron,
)

CLASSES, NUMBERS = 3, 6


def test_the_mean_is_that_of_probabilities():
    torch.manual_seed(0)
    members, inputs = [perceptron(NUMBERS, 12, CLASSES) for _ in range(3)], torch.randn(7, NUMBERS)
    together, alone = MeanOfProbabilities(members)(inputs), [member(inputs).tolist() for member in members]
    for row in range(7):
        for label in range(CLASSES):
            each = [math.exp(said[row][label]) / sum(map(math.exp, said[row])) for said in alone]
            assert together[row, label].exp().item() == pytest.approx(sum(each) / 3, rel=1e-5)
    torch.testing.assert_close(together.softmax(1), together.exp())
    torch.testing.assert_close(MeanOfProbabilities([MeanOfProbabilities(members)])(inputs), together)
    with pytest.raises(InputError, match="members=0"):
        MeanOfProbabilities([])


def test_logits_without_bounds_stay_finite():
    class Certain(nn.Module):
        def forward(self, inputs):
            return torch.tensor([[1e4, 0.0, -1e4]]).expand(len(inputs), -1)

    together = MeanOfProbabilities([Certain(), Certain()])(torch.zeros(2, 1))
    assert together.isfinite().all()
    assert together.argmax(1).tolist() == [0, 0]


def ensemble(networks, perceptrons, features="inputs", shape=(NUMBERS,)):
    """With weights that no other has."""
    torch.manual_seed(networks + perceptrons)
    fixed = FixedFeatures(features, shape)
    numbers = fixed(torch.zeros(1, *shape)).numel()
    see = PublicMap(fixed, torch.rand(numbers), torch.randn(numbers, 4))
    heads = [perceptron(4, 5, CLASSES) for _ in range(perceptrons)]
    return networks_and_perceptrons([build("linear", shape, CLASSES) for _ in range(networks)], see, heads)


@pytest.mark.parametrize(
    ("networks", "perceptrons", "features", "shape"),
    [
        (2, 0, "inputs", (NUMBERS,)),
        (1, 0, "inputs", (NUMBERS,)),
        (1, 1, "inputs", (NUMBERS,)),
        (11, 2, "inputs", (NUMBERS,)),
        (2, 3, "upright-scattering", (1, 8, 8)),
    ],
)
def test_an_ensemble_is_made_anew_from_its_weights(networks, perceptrons, features, shape):
    model = ensemble(networks, perceptrons, features, shape)
    state, inputs = model.state_dict(), torch.rand(7, *shape)
    assert has_perceptrons(state) is bool(perceptrons)
    again = ensemble_of_weights(
        state, lambda: build("linear", shape, CLASSES), FixedFeatures(features, shape), shape, CLASSES
    )
    again.load_state_dict(state)
    assert torch.equal(again(inputs), model(inputs))
    first = build("linear", shape, CLASSES)
    first.load_state_dict(first_network(state))
    by_pixels = model.members[0] if perceptrons else model
    assert torch.equal(first(inputs), by_pixels.members[0](inputs))


def test_other_states_are_no_ensembles():
    state = build("mlp", (NUMBERS,), CLASSES).state_dict()
    assert first_network(state) is None
    assert first_network({}) is None
    assert not has_perceptrons(state)


@pytest.mark.parametrize("lost", ["members.1.1.members.0.0.bias", "members.1.1.members.1.2.weight", "members.1.0.mean"])
def test_a_state_that_lost_a_weight_does_not_fit(lost):
    state = ensemble(2, 2).state_dict()
    del state[lost]
    again = ensemble_of_weights(state, lambda: build("linear", (NUMBERS,), CLASSES), nn.Identity(), (NUMBERS,), CLASSES)
    with pytest.raises(RuntimeError, match=lost):
        again.load_state_dict(state)


def test_fixed_features_are_what_their_names_say():
    images = torch.rand(3, 1, 8, 8)
    scattering, found = balanced_scattering((1, 8, 8)), {n: FixedFeatures(n, (1, 8, 8))(images) for n in FIXED_FEATURES}
    assert found.keys() == {"inputs", "scattering", "upright-scattering"}
    assert torch.equal(found["inputs"], images)
    assert torch.equal(found["scattering"], scattering(images))
    assert torch.equal(found["upright-scattering"], scattering(Upright()(images)))
    assert not torch.equal(found["upright-scattering"], found["scattering"])


def test_features_without_a_name_are_refused():
    with pytest.raises(InputError, match="features='edges': must be one of inputs, scattering, upright-scattering"):
        FixedFeatures("edges", (1, 8, 8))
