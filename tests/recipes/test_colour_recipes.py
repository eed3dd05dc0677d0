"""The recipes on colour images, end to end on a few random images: what they train, on what, and at what cost."""

import dataclasses
import functools
import math
from pathlib import Path

import pytest
import torch

from tacit.core.errors import InputError
from tacit.datasets import DataSet, Split
from tacit.datasets.random_processes import PowerLawSpectra
from tacit.models.patch_filters import PatchFilters
from tacit.models.wide_resnet import WideResNet
from tacit.recipes import Conditions, find_recipe, run_recipe
from tacit.recipes.colour_images import half_precision_loss, random_views
from tacit.recipes.cropped_network import crop_and_flip
from tacit.recipes.fixed_features import PriorMaps, named_features
from tacit.recipes.noise_prior_cifar10 import find_prior, prior_folder, start
from tacit.recipes.scale_cifar10 import examples_at_once
from tacit.recipes.scatter_cnn_cifar10 import BothSides, OverSides
from tacit.training import Execution, over_views
from tacit.training.augmentation import ContrastiveView
from tacit.training.evaluation import classification_loss
from tacit.training.noise_prior import Backbone, NoisePrior, pretrain_on_noise, prior_facts
from tacit.training.pretraining import Pretraining

_EXAMPLES = 40
TINY = {"batch_size": "20", "steps": "3", "epsilon": "20", "delta": "0.001"}


def quiet(*_):
    pass


def conditions(**changes):
    return Conditions(execution=Execution(compile=False), points=3, **changes)


@pytest.fixture(autouse=True)
def few_images(monkeypatch, tmp_path):
    generator = torch.Generator().manual_seed(0)

    def load(name):
        images = torch.rand(_EXAMPLES + 20, 3, 32, 32, generator=generator)
        targets = torch.randint(10, (_EXAMPLES + 20,), generator=generator)
        train, test = (Split(images[part], targets[part]) for part in (slice(_EXAMPLES), slice(_EXAMPLES, None)))
        return DataSet(name, train, test, 10, (3, 32, 32), "drawn")

    monkeypatch.setattr("tacit.recipes.recipe.load", load)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def prior(tmp_path_factory):
    folder = tmp_path_factory.mktemp("priors") / "prior"
    config = NoisePrior(
        backbone=Backbone(depth=10, width=1),
        process=PowerLawSpectra(32),
        training=Pretraining(steps=2, batch=4, pool=8, projection=16, dimensions=8, view=ContrastiveView(size=32)),
    )
    pretrain_on_noise(config, device="cpu", out=folder)
    return folder


def run(name, **settings):
    return run_recipe(find_recipe(name), {**TINY, **settings}, conditions(), quiet)


@pytest.mark.parametrize("kind", ["linear", "cnn"])
def test_scattering_counts_its_two_preparations(kind):
    result = run(f"scatter-{kind}-cifar10", preparation_noise="5")
    assert result["plan"]["preparations"] == [
        "centring by a noisy mean of unit vectors with noise multiplier 5",
        "whitening of channels by noisy second moments with noise multiplier 5",
    ]
    assert 19 < result["epsilon"] <= 20
    assert result["steps"] == 3


@pytest.mark.parametrize(
    ("name", "features", "numbers"),
    [
        ("scatter", None, 243 * 64),
        ("filters", None, 243 * 64 + 800 * 16),
        ("noise", "scattering,leaves", 243 * 64 + 800 * 16),
    ],
)
def test_linear_lines_have_fixed_features_of_one_size(name, features, numbers):
    recipe = find_recipe(f"{name}-linear-cifar10")
    configuration = recipe.configured({} if features is None else {"features": features})
    images = torch.rand(2, 3, 32, 32)
    found = configuration.features((3, 32, 32))(torch.cat([images, images.flip(3)]))
    assert found.shape == (4, numbers)
    assert not found.requires_grad
    torch.testing.assert_close(found[:2], found[2:], rtol=1e-3, atol=1e-3)
    centring, whitening = configuration.preparations(100)
    assert whitening.mechanism.noise_multiplier == centring.mechanism.noise_multiplier
    assert sum(channels * places for channels, places in whitening.kinds) == numbers


def test_a_linear_line_runs_and_counts_its_preparations():
    result = run("filters-linear-cifar10", features="filters")
    assert 19 < result["epsilon"] <= 20
    assert len(result["plan"]["preparations"]) == 2


def test_maps_of_a_prior_are_fixed(prior):
    network = find_prior(prior)
    maps = PriorMaps(network)
    images = torch.rand(3, 3, 32, 32)
    assert maps(images).shape == (3, 64, 8, 8)
    assert not maps(images).requires_grad
    assert not [weight for weight in maps.parameters() if weight.requires_grad]
    torch.testing.assert_close(maps(images), network.maps(images))


def test_maps_of_a_prior_are_smoothed_and_those_of_both_sides_averaged(prior):
    (kind,) = named_features("network")
    images = torch.rand(3, 3, 32, 32)
    maps = torch.lerp(find_prior(prior).maps(images), find_prior(prior).maps(images.flip(3)), 0.5)
    due = torch.stack([maps[:, :, y : y + 3, x : x + 3].mean(dim=(2, 3)) for y in range(6) for x in range(6)], dim=2)
    torch.testing.assert_close(kind.make(prior)(images).flatten(2), due)
    assert kind.kind == (256, 36)  # of the prior that is not as narrow as this one


def test_leaves_are_averaged_over_squares_that_overlap(prior):
    """Of 11 patches in 27, five apart; random filters keep to cells."""
    windows = [
        layer.window
        for kind in named_features("leaves,filters")
        for layer in kind.make(prior).modules()
        if isinstance(layer, PatchFilters)
    ]
    assert windows == [11, None]


@pytest.mark.parametrize(("name", "steps", "whitening"), [("filters", 200, 0.7), ("noise", 400, 1.0)])
def test_linear_lines_have_levels_of_their_own(name, steps, whitening):
    configuration = find_recipe(f"{name}-linear-cifar10").configured({"epsilon": "8"})
    assert configuration.steps == steps
    assert configuration.preparations(100)[1].power == whitening


def test_a_prior_of_another_width_is_refused(prior):
    with pytest.raises(InputError, match="hold 9216 numbers"):
        run("noise-linear-cifar10", features="network", prior=str(prior))


def find_prior_of(name, **settings):
    find_recipe(name).configured({"batch_size": "20"} | settings).make_start(torch.device("cpu"), quiet)


@pytest.mark.parametrize("name", ["noise-linear-cifar10", "noise-prior-cifar10"])
def test_a_folder_without_a_prior_is_refused_by_its_knob_and_not_to_be_deleted(name, tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError) as refused:
        find_prior_of(name, prior=str(tmp_path))
    assert str(refused.value).startswith(f"prior={str(tmp_path)!r}: holds no prior as tacit writes it")
    assert "Give a folder that tacit.training.noise_prior.pretrain_on_noise wrote" in str(refused.value)
    assert "elete" not in str(refused.value)
    with pytest.raises(InputError, match=r"^prior="):
        find_recipe(name).configured({"prior": str(tmp_path)}).start.record()


def test_a_damaged_prior_in_the_cache_may_be_deleted():
    prior_folder(None).mkdir(parents=True)
    with pytest.raises(InputError, match=rf"{prior_folder(None)}'.*Delete the folder"):
        find_prior_of("noise-prior-cifar10")


def test_a_prior_with_other_settings_has_a_folder_of_its_own(monkeypatch):
    """Else one that was made before they were changed would be taken without a word."""
    today = prior_folder(None)
    shorter = functools.partial(NoisePrior, training=Pretraining(steps=4500))
    monkeypatch.setattr("tacit.recipes.noise_prior_cifar10.NoisePrior", shorter)
    assert prior_folder(None) != today
    assert prior_folder("mine") == Path("mine")


@pytest.mark.parametrize(
    ("wrong", "said"), [({"epsilon": "0.1"}, "before training come"), ({"batch_size": "50"}, "at most the 40 examples")]
)
def test_what_the_data_set_refuses_is_refused_before_a_prior_is_made(monkeypatch, wrong, said):
    monkeypatch.setattr("tacit.recipes.noise_prior_cifar10.find_prior", lambda *_: pytest.fail("minutes of a GPU"))
    with pytest.raises(InputError, match=said):
        find_prior_of("noise-linear-cifar10", **wrong)


def test_a_linear_line_says_which_prior_it_began_from(prior):
    recipe = find_recipe("noise-linear-cifar10")
    assert recipe.configured({"prior": str(prior)}).start.record() == prior_facts(prior)
    assert recipe.configured({"features": "leaves"}).start is None


def test_unknown_features_are_named():
    with pytest.raises(InputError, match=r"features=scattering,waves: 'waves' is none of scattering, filters"):
        find_recipe("scatter-linear-cifar10").configured({"features": "scattering,waves"})


def test_both_sides_of_a_mirrored_image_are_those_of_the_image_exchanged():
    features = BothSides(torch.nn.Conv2d(3, 4, 3))
    images = torch.rand(2, 3, 8, 8)
    classifier = OverSides(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4 * 6 * 6, 5)))
    seen, mirrored = features(images), features(images.flip(3))
    assert torch.equal(torch.cat(seen.chunk(2, dim=2)[::-1], dim=2), mirrored)
    torch.testing.assert_close(classifier(seen), classifier(mirrored))


def test_scale_trains_views_and_mixtures_with_the_noise_of_epsilon():
    result = run("scale-cifar10", depth="10", width="1", multiplicity="2", mixtures="1")
    assert 19 < result["epsilon"] <= 20
    assert len(result["history"]) == 3


@pytest.mark.parametrize(("epsilon", "steps", "noise"), [("1", 875, 10.0), ("8", 2468, 3.0)])
def test_scale_has_the_published_runs(epsilon, steps, noise):
    recipe = find_recipe("scale-cifar10")
    plan = recipe.configure(recipe.with_settings({"epsilon": epsilon, "setting": "published"})).plan(50_000)
    assert (plan.steps, plan.noise_multiplier, plan.expected_batch_size) == (steps, noise, 4096)
    assert plan.epsilon() < float(epsilon)  # theirs was counted more loosely


def test_published_runs_are_those_of_the_paper():
    for name in ("scale-cifar10", "noise-prior-cifar10"):
        recipe = find_recipe(name)
        with pytest.raises(InputError, match="epsilon=5"):
            recipe.configure(recipe.with_settings({"epsilon": "5", "setting": "published"}))


@pytest.mark.parametrize(("batch_size", "views"), [(4096, 1), (4096, 16), (16384, 4), (20, 2)])
def test_a_lot_comes_in_even_parts(batch_size, views):
    size = examples_at_once(batch_size, views)
    lot = batch_size + 4 * math.isqrt(batch_size)
    parts = math.ceil(lot / size)
    assert size % 8 == 0
    assert parts * size - lot < 8 * parts
    assert size * views <= 4400 + 8 * views


def test_noise_prior_trains_its_head_and_then_everything_in_one_account(prior):
    result = run("noise-prior-cifar10", prior=str(prior), multiplicity="2", readout_steps="2")
    assert result["steps"] == 3
    assert 19 < result["epsilon"] <= 20
    assert [point["step"] for point in result["history"]] == [1, 2, 3]
    assert result["public_start"] == prior_facts(prior)
    assert result["public_start"]["private_data"] == "none"


def test_readout_alone_leaves_the_trunk_as_it_was(prior, monkeypatch):
    trained = []
    configure = find_recipe("noise-prior-cifar10").configure

    def watched(knobs):
        configuration = configure(knobs)

        def model(shape, classes):
            trained.append(configuration.model(shape, classes))
            return trained[-1]

        return dataclasses.replace(configuration, model=model)

    recipe = dataclasses.replace(find_recipe("noise-prior-cifar10"), configure=watched)
    settings = {**TINY, "prior": str(prior), "multiplicity": "2", "readout_steps": "3"}
    run_recipe(recipe, settings, conditions(), quiet)
    before = start(prior, 10).state_dict()
    after = trained[0].state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"norm.weight", "norm.bias", "head.weight", "head.bias"}


def test_readout_steps_are_part_of_the_run(prior):
    with pytest.raises(InputError, match="at most the 3 steps"):
        run("noise-prior-cifar10", prior=str(prior), multiplicity="2", readout_steps="4")


def test_prior_with_readout_is_the_model():
    model = WideResNet(10, 1, 3, 10)
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(model.readout()(model.trunk(images)), model(images))


def test_prior_that_is_not_there_is_not_made_on_a_cpu(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="there is none"):
        start(tmp_path / "missing", 10)


def test_abadi_trains_crops_and_tests_the_middle():
    images, targets = torch.rand(5, 3, 32, 32), torch.arange(5)
    cut, same = crop_and_flip(torch.Generator().manual_seed(0))(images, targets)
    assert cut.shape == (5, 3, 24, 24)
    assert same is targets
    flat = images.flatten(1)
    assert all(torch.isin(cut[i].flatten(), flat[i]).all() for i in range(5))
    result = run("abadi2016-cifar10", channels="4", hidden="8")
    assert 19 < result["epsilon"] <= 20


def test_a_record_more_moves_the_draws_of_all_after_it():
    """Why they must be secret: under one seed, a neighbouring lot is another lot from there on."""
    images, more = torch.rand(6, 3, 32, 32), torch.rand(1, 3, 32, 32)
    changed = [
        crop_and_flip(torch.Generator().manual_seed(0))(lot, torch.zeros(len(lot)))[0]
        for lot in (images, torch.cat([more, images]))
    ]
    same = [torch.equal(before, after) for before, after in zip(changed[0], changed[1][1:], strict=True)]
    assert sum(same) < 3


def test_views_and_mixtures_are_counted_and_their_loss_is_one_an_example():
    images, targets = torch.rand(4, 3, 32, 32), torch.arange(4)
    made, _ = random_views(3, mixtures=2)(torch.Generator().manual_seed(0))(images, targets)
    assert made.shape == (4, 5, 3, 32, 32)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10))
    losses = over_views(half_precision_loss)(model, made, targets)
    assert losses.shape == (4,)
    torch.testing.assert_close(losses, over_views(classification_loss)(model, made, targets))  # on a CPU
