"""The networks: shapes, parameter counts, and the arithmetic of weight standardisation."""

import pytest
import torch
from torch import nn

from tacit.core.errors import InputError
from tacit.models import MODELS, build, default_model, linear, mlp, simple, tanh_cnn, wide_resnet
from tacit.models.wide_resnet import StandardisedConv2d, standardise_weight


def count(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        ("linear", (1, 8, 8), 650),
        ("linear", (17,), 180),
        ("mlp", (1, 28, 28), 101_770),
        ("tanh-cnn", (1, 8, 8), 9_258),
        ("tanh-cnn", (1, 28, 28), 26_010),
        ("tanh-cnn", (3, 32, 32), 550_570),
        ("wrn-16-4", (3, 32, 32), 2_753_818),
    ],
)
def test_parameter_counts_and_output_shapes(name, shape, parameters):
    model = build(name, shape, 10)
    assert count(model) == parameters
    assert model(torch.rand(2, *shape)).shape == (2, 10)
    assert model(torch.rand(0, *shape)).shape == (0, 10)


def test_the_published_tanh_cnn_layer_by_layer():
    kinds = [type(layer).__name__ for layer in tanh_cnn((1, 28, 28), 10)]
    assert kinds == [
        "Conv2d", "Tanh", "NeighbourMaximum", "Conv2d", "Tanh", "NeighbourMaximum",
        "Flatten", "Linear", "Tanh", "Linear",
    ]  # fmt: skip
    assert tanh_cnn((1, 28, 28), 10)[7].in_features == 512


def test_neighbours_have_the_maximum_and_the_gradient_of_pooling():
    values = torch.randn(5, 3, 7, 6, dtype=torch.float64)
    values[0] = values[0].round()  # many are equal: the first of them in its square has the gradient
    values[1] = 1.0
    found, expected = values.clone().requires_grad_(), values.clone().requires_grad_()
    maxima, pooled = simple.NeighbourMaximum()(found), nn.MaxPool2d(2, stride=1)(expected)
    torch.testing.assert_close(maxima, pooled)
    weights = torch.randn_like(pooled)
    (maxima * weights).sum().backward()
    (pooled * weights).sum().backward()
    torch.testing.assert_close(found.grad, expected.grad)


def test_mlp_widths():
    assert count(mlp(10, (8, 4), 3)) == 10 * 8 + 8 + 8 * 4 + 4 + 4 * 3 + 3
    assert count(mlp(10, 8, 3)) == 10 * 8 + 8 + 8 * 3 + 3
    assert count(mlp(10, (), 3)) == count(linear(10, 3))


@pytest.mark.parametrize("name", list(MODELS))
def test_seeding_torch_fixes_the_weights_and_building_draws_nothing_else(name):
    weights = []
    for _ in range(2):
        torch.manual_seed(3)
        weights.append(build(name, (3, 32, 32), 10).state_dict())
    for key, value in weights[0].items():
        assert torch.equal(value, weights[1][key])


@pytest.mark.parametrize("name", list(MODELS))
def test_no_network_mixes_examples(name):
    torch.manual_seed(0)
    model = build(name, (3, 32, 32), 10).double().train()
    batch = torch.rand(3, 3, 32, 32, dtype=torch.float64)
    alone = torch.cat([model(example.unsqueeze(0)) for example in batch])
    torch.testing.assert_close(model(batch), alone, rtol=1e-9, atol=1e-10)


def test_standardised_kernels_are_centred_and_of_the_gains_length():
    torch.manual_seed(0)
    weight, gain = torch.randn(6, 4, 3, 3, dtype=torch.float64) + 2, torch.rand(6, dtype=torch.float64) + 0.5
    kernels = standardise_weight(weight, gain)
    torch.testing.assert_close(kernels.mean(dim=(1, 2, 3)), torch.zeros(6, dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(kernels.flatten(1).norm(dim=1), gain)
    torch.testing.assert_close(standardise_weight(3 * weight + 1, gain), kernels)
    constant = standardise_weight(torch.ones(1, 4, 3, 3), torch.ones(1))
    assert torch.equal(constant, torch.zeros(1, 4, 3, 3))


def test_standardised_convolution_keeps_or_halves_the_size():
    images = torch.rand(2, 4, 9, 9)
    assert StandardisedConv2d(4, 6, 3)(images).shape == (2, 6, 9, 9)
    assert StandardisedConv2d(4, 6, 3, stride=2)(images).shape == (2, 6, 5, 5)
    assert StandardisedConv2d(4, 6, 1, stride=2)(images).shape == (2, 6, 5, 5)


def test_wide_resnet_is_parametrised():
    deeper, wider = wide_resnet((3, 32, 32), 10, depth=22, width=1), wide_resnet((3, 32, 32), 10, depth=10, width=2)
    assert len(deeper.blocks) == 9
    assert wider.head.in_features == 128
    groups = [module.num_groups for module in wider.modules() if isinstance(module, nn.GroupNorm)]
    assert set(groups) == {16}


def test_a_wide_resnets_readout_and_features_are_its_forward_pass_in_two_parts():
    torch.manual_seed(0)
    model = wide_resnet((3, 16, 16), 10, depth=10, width=1, centre=True).double()
    images = torch.rand(3, 3, 16, 16, dtype=torch.float64)
    trunk = model.trunk(images)
    assert trunk.shape == (3, 64, 4, 4)
    torch.testing.assert_close(model.readout()(trunk), model(images))
    torch.testing.assert_close(model.head(model.features(images)), model(images))
    torch.testing.assert_close(model.maps(images).mean((2, 3)), model.features(images))
    assert {id(p) for p in model.readout().parameters()} == {
        id(p) for m in (model.norm, model.head) for p in m.parameters()
    }


def test_centred_networks_see_grey_as_zero():
    torch.manual_seed(0)
    plain = wide_resnet((3, 16, 16), 10, depth=10, width=1)
    centred = wide_resnet((3, 16, 16), 10, depth=10, width=1, centre=True)
    centred.load_state_dict(plain.state_dict())
    images = torch.rand(2, 3, 16, 16)
    torch.testing.assert_close(centred(images), plain((images - 0.5) / 0.25))


def test_the_shortcuts_order_is_its_own():
    usual = wide_resnet((3, 32, 32), 10)
    third = wide_resnet((3, 32, 32), 10, shortcut="norm-relu-conv")
    assert count(usual) == count(third)
    for model, expected in ((usual, ["ReLU", "GroupNorm"]), (third, ["GroupNorm", "ReLU"])):
        for block in model.blocks:
            projects = not isinstance(block.skip, nn.Identity)
            assert [type(layer).__name__ for layer in list(block.first)[:2]] == ["ReLU", "GroupNorm"]
            if projects:
                assert [type(layer).__name__ for layer in list(block.skip)[:2]] == expected
    with pytest.raises(InputError, match="shortcut='conv': must be one of norm-relu-conv, relu-norm-conv"):
        wide_resnet((3, 32, 32), 10, shortcut="conv")


def test_default_models():
    assert default_model((1, 8, 8)) == "linear"
    assert default_model((1, 28, 28)) == "tanh-cnn"
    assert default_model((3, 32, 32)) == "tanh-cnn"
    assert default_model((17,)) == "linear"
    assert default_model((4, 32, 32)) == "linear"


@pytest.mark.parametrize(
    ("name", "shape", "classes", "message"),
    [
        (
            "resnet",
            (1, 28, 28),
            10,
            "model='resnet': must be one of linear, mlp, norm-cnn, norm-cnn-wide, table-mlp",
        ),
        ("tanh-cnn", (17,), 10, r"input_shape=\(17,\): tanh-cnn takes images"),
        ("tanh-cnn", (2, 28, 28), 10, r"input_shape=\(2, 28, 28\)"),
        ("wrn-16-4", (17,), 10, r"input_shape=\(17,\): a WRN takes images"),
        ("linear", (), 10, "at least one dimension"),
        ("linear", (0,), 10, "input_shape=0"),
        ("mlp", (4,), 0, "classes=0"),
    ],
)
def test_bad_input(name, shape, classes, message):
    with pytest.raises(InputError, match=message):
        build(name, shape, classes)


def test_impossible_depths_and_widths():
    with pytest.raises(InputError, match="depth=18"):
        wide_resnet((3, 32, 32), 10, depth=18)
    with pytest.raises(InputError, match="depth=4"):
        wide_resnet((3, 32, 32), 10, depth=4)
    with pytest.raises(InputError, match="hidden=0"):
        mlp(4, (3, 0), 2)


def test_gabor_filters_are_public_edge_detectors():
    filters = simple.gabor_filters(16, 8)
    assert filters.shape == (16, 1, 8, 8)
    torch.testing.assert_close(filters.mean((1, 2, 3)), torch.zeros(16), atol=1e-7, rtol=0)
    torch.testing.assert_close(filters.square().sum((1, 2, 3)), torch.ones(16))
    vertical, horizontal = filters[1, 0], filters[9, 0]  # odd phase, directions 0 and 90 degrees
    torch.testing.assert_close(vertical, -vertical.flip(1), atol=1e-6, rtol=0)
    torch.testing.assert_close(horizontal, vertical.t(), atol=1e-6, rtol=0)
    model = simple.tanh_cnn((1, 28, 28), 10)
    torch.testing.assert_close(model[0].weight.detach(), 1.2 * filters)
