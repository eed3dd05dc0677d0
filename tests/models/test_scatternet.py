"""What is trained on scattering features: shapes, published sizes, and normalisation that sees one image at a time."""

import pytest
import torch
from torch import nn

from tacit.core.errors import InputError
from tacit.models import Scattering, balanced_scattering, scatter_cnn, scatter_features, scatter_linear


@pytest.mark.parametrize(
    ("head", "image", "parameters"),
    [
        (scatter_linear, (1, 28, 28), 39_700),
        (scatter_cnn, (1, 28, 28), 33_066),
        (scatter_linear, (3, 32, 32), 155_530),
        (scatter_cnn, (3, 32, 32), 187_210),
        (scatter_cnn, (1, 16, 20), 22_826),
    ],
)
def test_from_images_to_classes(head, image, parameters):
    features = scatter_features(image)
    shape = tuple(features(torch.rand(2, *image)).shape[1:])
    model = head(shape, 10)
    assert sum(p.numel() for p in model.parameters()) == parameters
    for count in (0, 2):
        assert model(features(torch.rand(count, *image))).shape == (count, 10)


def test_the_published_heads_layer_by_layer():
    grey = [type(layer).__name__ for layer in scatter_cnn((81, 7, 7), 10)]
    assert grey == ["Conv2d", "Tanh", "Conv2d", "Tanh", "Flatten", "Linear", "Tanh", "Linear"]
    assert scatter_cnn((81, 7, 7), 10)[5].in_features == 512
    colour = [type(layer).__name__ for layer in scatter_cnn((243, 8, 8), 10)]
    assert colour == ["Conv2d", "Tanh", "MaxPool2d", "Conv2d", "Tanh", "Flatten", "Linear"]


def test_the_linear_head_starts_at_zero():
    assert all(not p.any() for p in scatter_linear((81, 7, 7), 10).parameters())


@pytest.mark.parametrize("groups", [9, 27, 81])
def test_groups_are_normalised_in_every_image_by_itself(groups):
    images = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    transform = scatter_features((1, 28, 28), groups)
    features = transform(images)
    grouped = features.view(4, groups, -1)
    torch.testing.assert_close(grouped.mean(2), torch.zeros(4, groups), atol=1e-5, rtol=0)
    assert float(grouped.var(2, unbiased=False).max()) <= 1 + 1e-5
    for image, alone in zip(images, features, strict=True):
        torch.testing.assert_close(transform(image[None])[0], alone)
    assert not list(transform.parameters())
    assert not transform.state_dict()


def test_images_without_contrast_have_finite_features():
    assert scatter_features((1, 28, 28))(torch.zeros(1, 1, 28, 28)).isfinite().all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: scatter_features((28, 28)), r"input_shape=\(28, 28\): scattering takes images"),
        (lambda: scatter_features((1, 28, 28), 10), "groups=10: must divide the 81 features. Take 9, 27 or 81."),
        (lambda: scatter_features((1, 28, 28), 0), "groups=0"),
        (lambda: scatter_features((1, 6, 28)), "size=6: must be at least 8"),
        (lambda: scatter_linear((3969,), 10), r"input_shape=\(3969,\): must be that of features"),
        (lambda: scatter_cnn((81, 2, 7), 10), "from 4x4"),
        (lambda: scatter_linear((81, 7, 7), 0), "classes=0"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_group_norm_has_no_parameters():
    norm = scatter_features((3, 32, 32))[1]
    assert isinstance(norm, nn.GroupNorm)
    assert norm.num_groups == 27
    assert not norm.affine


def test_balanced_scattering_multiplies_orders_by_public_factors():
    images = torch.rand(3, 2, 12, 12, generator=torch.Generator().manual_seed(1))
    balanced = balanced_scattering((2, 12, 12))(images).view(3, 2, 81, 3, 3)
    plain = Scattering((12, 12))(images).view(3, 2, 81, 3, 3)
    for orders, factor in ((slice(0, 1), 1.0), (slice(1, 17), 3.0), (slice(17, None), 9.0)):
        torch.testing.assert_close(balanced[:, :, orders], factor * plain[:, :, orders])
    assert not balanced_scattering((2, 12, 12)).state_dict()
    with pytest.raises(InputError, match="scattering takes images"):
        balanced_scattering((12, 12))
