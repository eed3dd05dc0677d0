"""Random processes: images in range, fixed by their seed, all different, and with the statistics that are claimed."""

import math

import pytest
import torch
import torch.nn.functional as F

from tacit.core.errors import InputError
from tacit.datasets.random_processes import (
    DeadLeaves,
    Mixture,
    PowerLawSpectra,
    UntrainedGenerators,
    default_mixture,
)
from tacit.datasets.random_processes import generators as generators_module
from tacit.datasets.random_processes.process import colour_mixing, standardised

PROCESSES = {
    "leaves": DeadLeaves(16, leaves=24, oversampling=1),
    "generators": UntrainedGenerators(16, channels=8, images_per_network=4),
    "spectra": PowerLawSpectra(16),
    "mixture": default_mixture(16),
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def spectral_slope(images, longest=8, shortest=2.5):
    """The slope of log power against log frequency, between waves of these lengths, under a window."""
    size = images.shape[-1]
    window = torch.hann_window(size)
    centred = images - images.mean((2, 3), keepdim=True)
    power = torch.fft.fft2(centred * window * window[:, None]).abs().square().mean((0, 1))
    frequencies = torch.hypot(torch.fft.fftfreq(size)[:, None], torch.fft.fftfreq(size))
    used = (frequencies >= 1 / longest) & (frequencies <= 1 / shortest)
    x, y = frequencies[used].log().double(), power[used].log().double()
    x = x - x.mean()
    return float((x * y).sum() / x.square().sum())


@pytest.mark.parametrize("name", PROCESSES)
@pytest.mark.parametrize("count", [0, 1, 7])
def test_shape_and_range(name, count):
    images = PROCESSES[name].sample(count, generator())
    assert images.shape == (count, 3, 16, 16)
    assert images.dtype == torch.float32
    assert torch.isfinite(images).all()
    assert ((images >= 0) & (images <= 1)).all()


@pytest.mark.parametrize("name", PROCESSES)
def test_the_seed_fixes_the_images_and_the_global_one_nothing(name):
    torch.manual_seed(1)
    images = PROCESSES[name].sample(5, generator(3))
    torch.manual_seed(2)
    assert torch.equal(images, PROCESSES[name].sample(5, generator(3)))
    assert not torch.equal(images, PROCESSES[name].sample(5, generator(4)))


@pytest.mark.parametrize("name", PROCESSES)
def test_every_image_is_another_and_has_structure_and_colour(name):
    draws = generator()
    images = torch.cat([PROCESSES[name].sample(30, draws) for _ in range(2)])
    distances = torch.cdist(images.flatten(1), images.flatten(1)) + 1e3 * torch.eye(60)
    assert distances.min() > 1
    assert 0.05 < images.std((2, 3)).mean() < 0.35
    assert 0.05 < images.mean((2, 3)).std(0).mean() < 0.3
    assert (images.std((1, 2, 3)) > 0.01).all()
    assert 0.02 < images.std(1).mean() < 0.3  # colours differ from grey
    assert ((images == 0) | (images == 1)).float().mean() < 0.25


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5])
def test_spectra_fall_off_with_their_exponent(exponent):
    exact = PowerLawSpectra(32, exponents=(exponent, exponent), stretch=1)
    slope = spectral_slope(exact.fields(300, 3, generator()))
    assert abs(slope + 2 * exponent) < 0.12
    assert abs(spectral_slope(exact.sample(300, generator())) + 2 * exponent) < 0.5  # exposure clips a little


def test_fields_are_gaussian_of_variance_one():
    fields = PowerLawSpectra(32, exponents=(1, 1)).fields(200, 2, generator())
    torch.testing.assert_close(fields.mean((2, 3)), torch.zeros(200, 2), atol=1e-5, rtol=0)
    torch.testing.assert_close(fields.square().mean((2, 3)), torch.ones(200, 2))
    assert abs(fields.pow(3).mean()) < 0.1
    assert torch.equal(standardised(torch.full((1, 1, 4, 4), 3.0)), torch.zeros(1, 1, 4, 4))


def test_stretched_spectra_have_a_direction():
    def direction(process):
        fields = process.fields(200, 1, generator())
        across, down = fields.diff(dim=3).square().mean((1, 2, 3)), fields.diff(dim=2).square().mean((1, 2, 3))
        return (across / down).log().abs().mean()

    assert direction(PowerLawSpectra(32, (1, 1), stretch=3)) > 2 * direction(PowerLawSpectra(32, (1, 1), stretch=1))


@pytest.mark.parametrize(("name", "low", "high"), [("leaves", -3.5, -1.5), ("generators", -4.5, -1.5)])
def test_slopes_of_the_other_spectra_are_those_of_natural_images(name, low, high):
    process = {"leaves": DeadLeaves(32), "generators": UntrainedGenerators(32, channels=16)}[name]
    assert low < spectral_slope(process.sample(96, generator())) < high


def test_colours_are_positively_correlated_with_variance_one():
    mixing = colour_mixing(4000, generator())
    covariance = mixing @ mixing.transpose(1, 2)
    torch.testing.assert_close(covariance.diagonal(dim1=1, dim2=2), torch.ones(4000, 3))
    assert 0.5 < covariance[:, 0, 1].mean() < 0.95


def test_the_leaf_in_front_is_the_first_that_contains_the_point():
    process = DeadLeaves(16, leaves=12, oversampling=2)
    shapes = process._draw_shapes(3, generator())
    front = process._front(shapes)
    for image, row, column in torch.cartesian_prod(torch.arange(3), torch.arange(0, 32, 3), torch.arange(0, 32, 3)):
        x, y = (int(column) + 0.5) / 2, (int(row) + 0.5) / 2
        covering = [k for k, leaf in enumerate(shapes[image].double().tolist()) if contains(leaf, x, y)]
        assert int(front[image, row, column]) == (covering[0] if covering else 12)


def contains(leaf, x, y):
    left, top, xx, xy, yx, yy, lobes, power = leaf
    u, v = xx * (x - left) + xy * (y - top), yx * (x - left) + yy * (y - top)
    quarter = lobes * math.atan2(v, u) / 4
    radius = (abs(math.cos(quarter)) ** power + abs(math.sin(quarter)) ** power) ** (-1 / power)
    return math.hypot(u, v) <= radius


def test_radii_of_leaves_follow_the_inverse_cube():
    shapes = DeadLeaves(32, leaves=2000, radii=(0.1, 0.1))._draw_shapes(5, generator())
    determinants = shapes[..., 2] * shapes[..., 5] - shapes[..., 3] * shapes[..., 4]
    radii = determinants.abs().rsqrt().flatten().sort().values
    assert abs(radii[0] - 3.2) < 0.01
    assert radii[-1] <= 16.01
    distribution = (3.2**-2 - radii**-2) / (3.2**-2 - 16.0**-2)
    expected = (torch.arange(10_000) + 0.5) / 10_000
    assert (distribution - expected).abs().max() < 1.95 / 100  # Kolmogorov's test at 0.1 %
    wrong = (3.2**-1 - radii**-1) / (3.2**-1 - 16.0**-1)
    assert (wrong - expected).abs().max() > 0.05


def test_chunks_do_not_change_the_leaves(monkeypatch):
    process = DeadLeaves(16, leaves=10)
    whole = process.sample(9, generator())
    monkeypatch.setattr("tacit.datasets.random_processes.leaves._SMALL_CHUNK_VALUES", 1)
    torch.testing.assert_close(process.sample(9, generator()), whole)


def test_modulated_convolutions_of_networks_side_by_side_are_one_networks_after_the_other():
    batch = generators_module._Batch(2, 3, 4, generator())
    maps, kernels = torch.randn(2, 12, 8, 8), torch.randn(3, 5, 4, 3, 3)
    state = batch.generator.get_state()
    mixed = batch._modulated(maps, kernels).view(2, 3, 5, 8, 8)
    batch.generator.set_state(state)
    styles = 1 + batch._linear(batch.mapped, 4)
    for image in range(2):
        for network in range(3):
            kernel = kernels[network] * styles[image, network].view(1, 4, 1, 1)
            kernel = kernel / kernel.flatten(1).norm(dim=1).view(5, 1, 1, 1)
            padded = F.pad(maps.view(2, 3, 4, 8, 8)[image, network][None], (1, 1, 1, 1), mode="reflect")
            torch.testing.assert_close(mixed[image, network], F.conv2d(padded, kernel)[0], rtol=1e-4, atol=1e-4)


def test_oriented_filters_turn_and_have_length_one():
    filters = generators_module.oriented_filters(8)
    assert filters.shape == (18, 3, 3)
    torch.testing.assert_close(filters.flatten(1).norm(dim=1), torch.ones(18))
    torch.testing.assert_close(filters[:16].mean((1, 2)), torch.zeros(16), atol=1e-6, rtol=0)
    torch.testing.assert_close(filters[4], filters[0].t(), atol=1e-6, rtol=0)  # a quarter turn apart
    torch.testing.assert_close(filters[12], filters[8].t(), atol=1e-6, rtol=0)


def test_images_of_one_network_are_more_alike_than_those_of_two(monkeypatch):
    monkeypatch.setattr(generators_module, "_NOISE", 0.0)
    monkeypatch.setattr(generators_module, "colour_mixing", lambda count, g: torch.eye(3).expand(count, 3, 3))
    images = UntrainedGenerators(16, channels=8, images_per_network=8).sample(64, generator())
    patterns = standardised(images).flatten(1) / math.sqrt(3 * 256)
    products = (patterns @ patterns.t()).view(8, 8, 8, 8).mean(dim=(1, 3))
    within, across = products.diagonal().mean() - 1 / 8, products[~torch.eye(8, dtype=torch.bool)]
    assert within > 0.08
    assert across.mean().abs() < 0.02


def test_mixtures_hold_their_shares_in_random_order():
    class Constant:
        size = 8

        def __init__(self, value):
            self.value = value

        def sample(self, count, generator):
            return torch.full((count, 3, 8, 8), self.value)

    mixture = Mixture((Constant(0.0), Constant(0.5), Constant(1.0)), (1, 2, 1))
    values = mixture.sample(40, generator())[:, 0, 0, 0]
    assert [int((values == value).sum()) for value in (0.0, 0.5, 1.0)] == [10, 20, 10]
    assert not torch.equal(values, values.sort().values)
    for count in range(12):
        assert len(mixture.sample(count, generator())) == count


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: PowerLawSpectra(3), "size=3: must be at least 4"),
        (lambda: PowerLawSpectra(exponents=(2, 1)), r"exponents=\(2, 1\): must be a lower and an upper bound"),
        (lambda: PowerLawSpectra(stretch=0.5), "stretch=0.5: must be at least 1"),
        (lambda: DeadLeaves(leaves=0), "leaves=0"),
        (lambda: DeadLeaves(oversampling=0), "oversampling=0"),
        (lambda: DeadLeaves(radii=(0, 0.1)), r"radii=\(0, 0.1\): .* above 0 up to 0.5"),
        (lambda: UntrainedGenerators(24), "size=24: must be a power of two. Take 32 or 64"),
        (lambda: UntrainedGenerators(4), "size=4: must be at least 8"),
        (lambda: UntrainedGenerators(images_per_network=0), "images_per_network=0"),
        (lambda: UntrainedGenerators(channels=0), "channels=0"),
        (lambda: Mixture((), ()), "one or more"),
        (lambda: Mixture((PowerLawSpectra(),), (1, 2)), r"weights=\(1, 2\): must be one for each of the 1 processes"),
        (lambda: Mixture((PowerLawSpectra(),), (0,)), "weights=0: must be a finite number above 0"),
        (lambda: Mixture((PowerLawSpectra(8), PowerLawSpectra(16)), (1, 1)), r"processes=\[8, 16\] pixels"),
        (lambda: PowerLawSpectra().sample(-1, generator()), "count=-1: must be at least 0"),
        (lambda: DeadLeaves().sample(-1, generator()), "count=-1"),
        (lambda: UntrainedGenerators().sample(-1, generator()), "count=-1"),
        (lambda: default_mixture().sample(-1, generator()), "count=-1"),
    ],
)
def test_bad_input(build, message):
    with pytest.raises(InputError, match=message):
        build()
