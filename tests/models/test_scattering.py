"""The scattering transform against its definition, written out in space; properties of filters and features."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.errors import InputError
from tacit.models.scattering import Scattering, averages, wavelets

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def rand(*shape, seed=0, dtype=torch.float64):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def circular_convolution(image, kernel):
    """sum over v of x(u - v) h(v), by a table of all pairs of pixels."""
    height, width = image.shape
    rows = (torch.arange(height)[:, None] - torch.arange(height)) % height
    columns = (torch.arange(width)[:, None] - torch.arange(width)) % width
    table = image[rows[:, None, :, None], columns[None, :, None, :]].flatten(2)
    return (table.to(torch.complex128) @ kernel.to(torch.complex128).flatten()).view(height, width)


def morlet(grid, scale, theta, angles, gain=1.0):
    """The wavelet in space: a plane wave under a Gaussian, its mean removed, made periodic; as a formula of its own."""
    height, width = grid
    slender = max(1.0, angles / 4)
    sigma, frequency = 0.8 * 2**scale, 0.75 * math.pi / 2**scale
    envelope = torch.zeros(grid, dtype=torch.complex128)
    carried = torch.zeros(grid, dtype=torch.complex128)
    for row in range(-4, 5):
        for column in range(-4, 5):
            y = torch.arange(height, dtype=torch.float64)[:, None] + row * height
            x = torch.arange(width, dtype=torch.float64)[None] + column * width
            along, across = x * math.cos(theta) + y * math.sin(theta), y * math.cos(theta) - x * math.sin(theta)
            bump = torch.exp(-(along**2 + (across / slender) ** 2) / (2 * sigma**2))
            bump = bump / (2 * math.pi * sigma**2 * slender)
            envelope += bump
            carried += bump * torch.exp(1j * frequency * along)
    return gain * (carried - carried.sum() / envelope.sum() * envelope)


def lowpass(grid, width):
    kernel = torch.zeros(grid, dtype=torch.float64)
    for row in range(-4, 5):
        for column in range(-4, 5):
            y = torch.arange(grid[0], dtype=torch.float64)[:, None] + row * grid[0]
            x = torch.arange(grid[1], dtype=torch.float64)[None] + column * grid[1]
            kernel += torch.exp(-(x**2 + y**2) / (2 * width**2))
    return kernel / kernel.sum()


def by_definition(image, scales, angles, gain=1.0, subsample=True):
    """Convolutions by shifts, moduli, averages: slow, and with no Fourier transform anywhere."""
    step = 2**scales
    sides = [step * (math.ceil(side / step) + 2) for side in image.shape]
    ends = [(step, padded - side - step) for side, padded in zip(image.shape, sides, strict=True)]
    padded = torch.nn.functional.pad(image[None, None], (*ends[1], *ends[0]), mode="reflect")[0, 0]

    def average(maps, fine):
        spacing = 2**fine if subsample else 1
        smooth = circular_convolution(maps, lowpass(maps.shape, 0.8 * 2 ** (scales - 1) / spacing)).real
        smooth = smooth[step // spacing :: step // spacing, step // spacing :: step // spacing]
        return smooth[: math.ceil(image.shape[0] / step), : math.ceil(image.shape[1] / step)]

    def modulus(maps, fine, coarse, index):
        relative = coarse - fine if subsample else coarse
        wave = circular_convolution(maps, morlet(maps.shape, relative, math.pi * index / angles, angles, gain)).abs()
        return wave[:: 2**relative, :: 2**relative] if subsample else wave

    zeroth, first, second = [average(padded, 0)], [], []
    for j1 in range(scales):
        for one in range(angles):
            once = modulus(padded, 0, j1, one)
            first.append(average(once, j1))
            for j2 in range(j1 + 1, scales):
                second += [average(modulus(once, j1, j2, two), j2) for two in range(angles)]
    return torch.stack([*zeroth, *first, *second])


@pytest.mark.parametrize(
    ("size", "scales", "angles"), [((8, 8), 1, 3), ((9, 11), 2, 3), ((16, 12), 2, 4), ((16, 17), 3, 2), ((4, 6), 1, 1)]
)
def test_the_transform_is_its_definition(size, scales, angles):
    image = rand(*size) - 0.3
    found = Scattering(size, scales=scales, angles=angles)(image[None, None])[0]
    gain = Scattering(size, scales=scales, angles=angles).gain
    torch.testing.assert_close(found, by_definition(image, scales, angles, gain), rtol=1e-10, atol=1e-11)


def test_float32_is_the_definition_to_its_precision():
    image = rand(12, 12)
    single = Scattering((12, 12), angles=4)(image.float()[None, None])[0]
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), by_definition(image, 2, 4), rtol=1e-5, atol=2e-6)


@gpu
@pytest.mark.parametrize(
    ("dtype", "rtol", "atol"), [(torch.float64, 1e-10, 1e-11), (torch.float32, 1e-4, 1e-5)], ids=["float64", "float32"]
)
@pytest.mark.parametrize(("size", "scales", "angles"), [((9, 11), 2, 3), ((16, 17), 3, 2)])
def test_a_gpu_gives_the_definition(size, scales, angles, dtype, rtol, atol):
    """Several images at once, two channels each: a GPU has larger chunks, and products and transforms of its own."""
    images = rand(3, 2, *size) - 0.3
    scattering = Scattering(size, scales=scales, angles=angles).cuda()
    found = scattering(images.to("cuda", dtype))
    assert found.is_cuda
    assert found.dtype == dtype
    due = torch.stack(
        [torch.cat([by_definition(channel, scales, angles, scattering.gain) for channel in image]) for image in images]
    )
    torch.testing.assert_close(found.cpu().double(), due, rtol=rtol, atol=atol)


def test_keeping_every_second_pixel_of_coarse_waves_changes_little():
    image = rand(16, 16)
    found = Scattering((16, 16), angles=4)(image[None, None])[0]
    everywhere = by_definition(image, 2, 4, subsample=False)
    assert float((found - everywhere).norm() / everywhere.norm()) < 0.01
    assert float((found - everywhere)[1:].norm() / everywhere[1:].norm()) < 0.05


@pytest.mark.parametrize(
    ("shape", "channels", "scales", "angles", "due"),
    [
        ((28, 28), 1, 2, 8, (81, 7, 7)),
        ((32, 32), 3, 2, 8, (243, 8, 8)),
        ((8, 8), 1, 1, 8, (9, 4, 4)),
        ((30, 17), 2, 2, 4, (50, 8, 5)),
        ((16, 16), 1, 3, 2, (19, 2, 2)),
    ],
)
def test_shapes(shape, channels, scales, angles, due):
    scattering = Scattering(shape, scales=scales, angles=angles)
    assert scattering.output_shape(channels) == due
    for count in (0, 1, 3):
        assert scattering(torch.rand(count, channels, *shape)).shape == (count, *due)


def test_channels_of_an_image_are_transformed_alone_and_come_one_after_the_other():
    images = rand(3, 2, 12, 10)
    scattering = Scattering((12, 10), angles=3)
    together = scattering(images)
    for channel in range(2):
        alone = scattering(images[:, channel : channel + 1])
        torch.testing.assert_close(together.unflatten(1, (2, -1))[:, channel], alone)


@pytest.mark.parametrize("chunk", [1, 2**17])
def test_chunks_change_nothing(chunk, monkeypatch):
    images = rand(7, 1, 12, 12)
    whole = Scattering((12, 12))(images)
    monkeypatch.setattr("tacit.models.scattering._SMALL_CHUNK_VALUES", chunk)
    torch.testing.assert_close(Scattering((12, 12))(images), whole, rtol=1e-12, atol=1e-14)


def test_an_image_that_is_not_finite_spoils_only_itself():
    images = rand(3, 1, 12, 12)
    scattering = Scattering((12, 12))
    due = scattering(images)
    images[1, 0, 3, 3] = math.inf
    found = scattering(images)
    torch.testing.assert_close(found[[0, 2]], due[[0, 2]])
    assert not found[1].isfinite().all()


# Filters


def littlewood_paley(grid, scales, angles, gain):
    bands = gain * torch.cat([wavelets(grid, scale, angles) for scale in range(scales)])
    mirrored = bands.flip(1, 2).roll((1, 1), (1, 2))
    average = torch.fft.fft2(lowpass(grid, 0.8 * 2 ** (scales - 1))).real
    return average**2 + (bands**2 + mirrored**2).sum(0) / 2


@pytest.mark.parametrize("grid", [(36, 36), (12, 40), (15, 14)])
@pytest.mark.parametrize("scale", [0, 1, 2])
def test_wavelets_have_mean_zero_and_the_spatial_form(grid, scale):
    spectra = wavelets(grid, scale, 8)
    assert spectra[:, 0, 0].abs().max() == 0
    for index in (0, 3, 5):
        spatial = morlet(grid, scale, math.pi * index / 8, 8)
        torch.testing.assert_close(torch.fft.ifft2(spectra[index]), spatial, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("angles", [1, 3, 8, 12])
@pytest.mark.parametrize("scales", [1, 2, 3, 4])
def test_littlewood_paley_sum_is_at_most_one(scales, angles):
    size = (32, 40)
    scattering = Scattering(size, scales=scales, angles=angles)
    padded = [side + 2 * 2**scales for side in size]
    total = littlewood_paley(padded, scales, angles, scattering.gain)
    assert total.max() <= 1 + 1e-9
    assert total[0, 0] == pytest.approx(1)
    assert scattering.gain > 0.9 or angles < 8


def test_averages_are_averages():
    for side, fine, scales in ((28, 0, 2), (28, 1, 2), (17, 2, 3)):
        matrix = averages(side, fine, scales)
        assert matrix.shape == (math.ceil(side / 2**scales), 2**scales * (math.ceil(side / 2**scales) + 2) // 2**fine)
        assert (matrix >= 0).all()
        torch.testing.assert_close(matrix.sum(1), torch.ones(len(matrix), dtype=torch.float64))


def test_filters_are_no_part_of_the_state_and_nothing_trains():
    scattering = Scattering((12, 12))
    assert not scattering.state_dict()
    assert not list(scattering.parameters())
    assert not scattering(torch.rand(1, 1, 12, 12, requires_grad=True)).requires_grad


# Properties

images = st.tuples(st.integers(8, 14), st.integers(8, 14), st.integers(0, 2**31)).map(
    lambda facts: rand(1, 1, *facts[:2], seed=facts[2])
)


@given(image=images, scale=st.floats(0.01, 100))
def test_the_transform_is_homogeneous_and_not_negative(image, scale):
    scattering = Scattering(image.shape[2:], angles=4)
    features = scattering(image)
    assert features.min() >= 0
    torch.testing.assert_close(scattering(scale * image), scale * features, rtol=1e-9, atol=1e-12)


@given(image=images, constant=st.floats(-5, 5))
def test_a_constant_image_has_an_average_and_nothing_else(image, constant):
    features = Scattering(image.shape[2:], angles=4)(torch.full_like(image, constant))[0]
    torch.testing.assert_close(features[0], torch.full_like(features[0], constant), rtol=1e-9, atol=1e-12)
    assert features[1:].abs().max() < 1e-12


@given(first=images, seed=st.integers(0, 2**31))
def test_no_energy_and_no_distance_is_gained(first, seed):
    """With a margin for what keeping every 2^j-th pixel does to energies, and for the reflected border."""
    size = tuple(first.shape[2:])
    second = rand(1, 1, *size, seed=seed)
    scattering = Scattering(size, angles=4)

    def padded(image):
        step, due = 4, [4 * (math.ceil(side / 4) + 2) for side in size]
        ends = [end - side - step for end, side in zip(due, size, strict=True)]
        return torch.nn.functional.pad(image, (step, ends[1], step, ends[0]), mode="reflect")

    for image, features in ((first, scattering(first)), (first - second, scattering(first) - scattering(second))):
        assert 16 * features.square().sum() <= 1.1 * padded(image).square().sum()


@settings(max_examples=20)
@given(seed=st.integers(0, 2**31), rows=st.integers(-1, 1), columns=st.integers(-1, 1))
def test_shifting_an_image_shifts_its_features(seed, rows, columns):
    image = torch.zeros(1, 1, 40, 40, dtype=torch.float64)
    image[..., 16:24, 16:24] = rand(8, 8, seed=seed)  # far from the border, so that what is beyond it is zero
    scattering = Scattering((40, 40), angles=4)
    shifted = scattering(image.roll((4 * rows, 4 * columns), (2, 3)))
    torch.testing.assert_close(shifted, scattering(image).roll((rows, columns), (2, 3)), rtol=1e-4, atol=1e-4)


def test_a_small_shift_changes_features_less_than_pixels():
    image = torch.zeros(1, 1, 28, 28, dtype=torch.float64)
    image[..., 10:18, 10:18] = rand(8, 8)
    moved = image.roll(1, 3)
    scattering = Scattering((28, 28))
    change = (scattering(moved) - scattering(image)).norm() / scattering(image).norm()
    assert change < 0.5 * (moved - image).norm() / image.norm()


def test_a_wave_answers_in_its_direction():
    grid = torch.arange(28, dtype=torch.float64)
    stripes = torch.cos(0.75 * math.pi * grid).expand(28, 28)[None, None]  # changes along the width: angle 0
    first_order = Scattering((28, 28))(stripes)[0, 1:9].mean((1, 2))
    assert first_order.argmax() == 0
    turned = Scattering((28, 28))(stripes.transpose(2, 3))[0, 1:9].mean((1, 2))
    assert turned.argmax() == 4


@pytest.mark.parametrize(
    ("size", "options", "message"),
    [
        ((28,), {}, r"size=\(28,\): must be height and width"),
        ((7, 28), {}, r"size=7: must be at least 8. With scales=2 an image needs 8 pixels a side; take fewer scales."),
        ((28, 28), {"scales": 0}, "scales=0: must be at least 1"),
        ((28, 28), {"angles": 0}, "angles=0: must be at least 1"),
        ((28, 28.5), {}, "size=28.5: must be a whole number"),
    ],
)
def test_bad_parameters(size, options, message):
    with pytest.raises(InputError, match=message):
        Scattering(size, **options)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (torch.rand(1, 1, 28, 27), r"images of shape \(1, 1, 28, 27\): must be \(N, C, 28, 28\). Make a Scattering of"),
        (torch.rand(28, 28), r"images of shape \(28, 28\): must be"),
        (torch.zeros(1, 1, 28, 28, dtype=torch.uint8), "images of dtype torch.uint8: must be float32 or float64"),
        (torch.zeros(1, 1, 28, 28, dtype=torch.float16), "images of dtype torch.float16: must be float32 or float64"),
    ],
)
def test_bad_images(bad, message):
    with pytest.raises(InputError, match=message):
        Scattering((28, 28))(bad)
