"""The network of 2016 with convolutions from public data: what is learned, kept, frozen and counted."""

import dataclasses
import json
import shutil

import pytest
import torch

from tacit.accounting import dpsgd_event, epsilon
from tacit.core.errors import InputError
from tacit.datasets import DataSet, Split
from tacit.datasets.locating import search_folders
from tacit.recipes import Conditions, find_recipe, run_recipe
from tacit.recipes.cropped_network import convolutions, network
from tacit.recipes.public_convolutions import PublicConvolutions
from tacit.training import Execution

TINY = {"batch_size": "20", "steps": "3", "epsilon": "8", "delta": "0.001", "channels": "4", "hidden": "8"}
SMALL = PublicConvolutions(channels=4, hidden=8, steps=5)
FROM_PUBLIC = {"start": "cifar100", "public_steps": "5"}
CONVOLUTIONS = {"1.weight", "1.bias", "4.weight", "4.bias"}
CPU = torch.device("cpu")


def quiet(*_):
    pass


@pytest.fixture(autouse=True)
def few_images(monkeypatch):
    generator = torch.Generator().manual_seed(0)

    def load(name):
        images, targets = torch.rand(60, 3, 32, 32, generator=generator), torch.randint(10, (60,), generator=generator)
        train, test = Split(images[:40], targets[:40]), Split(images[40:], targets[40:])
        return DataSet(name, train, test, 10, (3, 32, 32), "drawn")

    monkeypatch.setattr("tacit.recipes.recipe.load", load)


def watched(models):
    """The recipe, which adds every model that it builds to the list, with its weights at that time."""
    recipe = find_recipe("abadi2016-cifar10")

    def configure(knobs):
        configuration = recipe.configure(knobs)

        def model(shape, classes):
            built = configuration.model(shape, classes)
            models.append((built, {name: value.clone() for name, value in built.state_dict().items()}))
            return built

        return dataclasses.replace(configuration, model=model)

    return dataclasses.replace(recipe, configure=configure)


def run(models=None, *, seeds=1, progress=quiet, **settings):
    conditions = Conditions(seeds=seeds, execution=Execution(compile=False), points=3)
    return run_recipe(watched([] if models is None else models), {**TINY, **settings}, conditions, progress)


def moved(model, before):
    return {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_only_dense_layers_move_and_convolutions_are_those_of_cifar100(small_cifar100, optimizer):
    models = []
    run(models, seeds=2, optimizer=optimizer, average="0.5", **FROM_PUBLIC)
    public = SMALL.load_into(network(3, 4, 8, 10)).state_dict()
    dense = set(public) - CONVOLUTIONS
    for model, before in models:
        assert moved(model, before) == dense
        assert all(torch.equal(model.state_dict()[name], public[name]) for name in CONVOLUTIONS)
    assert moved(models[0][0], models[1][1]) == dense  # seeds share them


def test_from_a_random_start_everything_moves():
    models = []
    result = run(models)
    assert moved(*models[0]) == set(models[0][1])
    assert result["public_start"] is None
    assert result["published_note"].startswith("convolutions from CIFAR-100, ")


def test_convolutions_learn_from_the_public_images(small_cifar100):
    torch.manual_seed(SMALL.seed)
    untrained = convolutions(network(3, 4, 8, 100)).state_dict()
    learned = convolutions(SMALL.load_into(network(3, 4, 8, 10))).state_dict()
    assert set(learned) == CONVOLUTIONS
    assert not any(torch.equal(learned[name], untrained[name]) for name in CONVOLUTIONS)


def test_the_public_start_changes_nothing_in_the_account(small_cifar100):
    plain, from_public = run(), run(**FROM_PUBLIC)
    for fact in ("plan", "event", "statement", "epsilon", "noise_multiplier", "epsilon_by_accountant"):
        assert plain[fact] == from_public[fact]


def test_the_result_says_where_the_start_came_from(small_cifar100):
    seen = []
    result = run(progress=lambda *told: seen.append(told), **FROM_PUBLIC)
    start = result["public_start"]
    assert start["dataset"] == "cifar100"
    assert start["private_data"] == "none"
    assert start["training"] == dataclasses.asdict(SMALL)
    assert 0 <= start["accuracy"] <= 1
    assert len(bytes.fromhex(start["weights_sha256"])) == 32
    assert result["knobs"]["start"] == "cifar100"
    assert (result["published"], result["published_epsilon"]) == (0.73, 8.0)
    assert (0, 5, 5, 0.0, "public start") in seen


def test_they_are_made_once_and_need_no_cifar100_then(small_cifar100, monkeypatch):
    first = run(**FROM_PUBLIC)["public_start"]
    shutil.rmtree(search_folders("cifar100")[0])
    again = run(**FROM_PUBLIC, clip="3")["public_start"]
    assert again == first
    with pytest.raises(InputError, match="start='cifar100'"):
        run(start="cifar100", public_steps="6")


def test_making_them_moves_no_other_draw(small_cifar100):
    before = torch.random.get_rng_state()
    SMALL.make(CPU, quiet)
    assert torch.equal(before, torch.random.get_rng_state())


def test_without_cifar100_the_error_says_what_to_place_where(tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: pytest.fail("the network was used"))
    with pytest.raises(InputError) as refusal:
        find_recipe("abadi2016-cifar10").check({"start": "cifar100"})
    folder = tmp_path / "cifar100"
    for part in ("start='cifar100'", f"the folder {folder}", "cifar-100-binary.tar.gz", "tacit data get", "random"):
        assert part in str(refusal.value)


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"no weights")])
def test_damaged_convolutions_are_refused(small_cifar100, damage):
    SMALL.make(CPU, quiet)
    damage(SMALL.folder / "model.safetensors")
    with pytest.raises(InputError, match=r"holds no (convolutions of these settings|weights that .* public).*Delete"):
        SMALL.load_into(network(3, 4, 8, 10))


@pytest.mark.parametrize("claim", ["kind", "dataset_sha256", "training", "private_data"])
def test_weights_of_which_something_else_is_said_are_not_public(small_cifar100, claim):
    SMALL.make(CPU, quiet)
    path = SMALL.folder / "run.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, claim: "other"}))
    with pytest.raises(InputError, match=rf"known to be public \(.*{claim}"):
        SMALL.load_into(network(3, 4, 8, 10))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"start": "imagenet"}, "start='imagenet': must be one of"),
        ({"setting": "other"}, "setting='other': must be one of own, published, recalibrated"),
        ({"start": "cifar100", "public_steps": "0"}, "public_steps=0"),
        ({"setting": "published", "epsilon": "3"}, "epsilon=3: the paper has 2, 4, 8"),
        ({"public_steps": "7"}, "public_steps=7: start=random"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        find_recipe("abadi2016-cifar10").check(settings)


@pytest.mark.parametrize("level", [2.0, 4.0, 8.0])
def test_published_steps_are_those_that_the_moments_accountant_allows(level):
    recipe = find_recipe("abadi2016-cifar10")
    plan = recipe.configured({"setting": "published", "epsilon": f"{level}"}).plan(50_000)
    assert (plan.noise_multiplier, plan.expected_batch_size, plan.clipping.bound) == (6.0, 2000, 3.0)
    more = dpsgd_event(sampling_rate=0.04, noise_multiplier=6.0, steps=plan.steps + 1)
    assert epsilon(plan.event(), 1e-5, accountant="moments") <= level < epsilon(more, 1e-5, accountant="moments")
    assert plan.epsilon() < level


def test_recalibrated_has_the_same_steps_and_less_noise():
    plan = find_recipe("abadi2016-cifar10").configured({"setting": "recalibrated", "epsilon": "2"}).plan(50_000)
    assert plan.steps == 3509
    assert plan.noise_multiplier < 6
    assert plan.epsilon() <= 2
