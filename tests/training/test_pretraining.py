"""Learning from random images: the losses against slow twins, the pool, and a little training that helps."""

import copy
import dataclasses
import hashlib
import json
import math

import pytest
import torch
from torch import nn

from tacit.clipping import Flat
from tacit.core.errors import InputError
from tacit.datasets.random_processes import PowerLawSpectra
from tacit.gradients import clipped_grad
from tacit.models import wide_resnet
from tacit.models.wide_resnet import WideResNet
from tacit.training.augmentation import ContrastiveView
from tacit.training.evaluation import classification_loss
from tacit.training.noise_prior import Backbone, NoisePrior, load_prior, pretrain_on_noise, prior_facts
from tacit.training.pretraining import Pretraining, _Pool, alignment, features, pretrain, uniformity

TINY = Pretraining(
    steps=12, batch=16, warm_up=2, projection=16, dimensions=8, pool=48, reuse=4, view=ContrastiveView(size=8)
)


def sphere(count, dimensions=5, seed=0):
    points = torch.randn(count, dimensions, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return points / points.norm(dim=1, keepdim=True)


def tiny_backbone(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.GroupNorm(4, 8), nn.ReLU(), nn.Flatten())


def test_alignment_is_the_mean_squared_distance():
    first, second = sphere(7), sphere(7, seed=1)
    slow = sum(float((a - b).norm()) ** 2 for a, b in zip(first, second, strict=True)) / 7
    assert float(alignment(first, second)) == pytest.approx(slow)
    assert alignment(first, first) == 0


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_uniformity_is_the_logarithm_of_the_mean_potential(temperature):
    points = sphere(9)
    pairs = [(i, j) for i in range(9) for j in range(i)]
    potentials = [math.exp(-temperature * float((points[i] - points[j]).norm()) ** 2) for i, j in pairs]
    expected = math.log(sum(potentials) / len(pairs))
    assert float(uniformity(points, temperature=temperature)) == pytest.approx(expected)


def test_uniformity_between_its_ends():
    same, opposite = sphere(1).expand(4, -1), torch.cat([sphere(1), -sphere(1)])
    assert float(uniformity(same)) == pytest.approx(0, abs=1e-12)
    assert float(uniformity(opposite)) == pytest.approx(-8)
    with pytest.raises(InputError, match="points=1: must be two or more"):
        uniformity(sphere(1))


def test_both_losses_have_the_gradients_of_their_definitions():
    first, second = sphere(6).requires_grad_(), sphere(6, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(alignment, (first, second))
    assert torch.autograd.gradcheck(uniformity, (first,))


def test_following_uniformity_spreads_points():
    crowded = nn.functional.normalize(torch.ones(12, 3) + 0.05 * torch.randn(12, 3), dim=1).requires_grad_()
    before = uniformity(crowded)
    before.backward()
    moved = nn.functional.normalize(crowded.detach() - 0.5 * crowded.grad, dim=1)
    assert uniformity(moved) < before


def test_every_parameter_of_the_embedding_is_trained_and_no_other():
    model = wide_resnet((3, 8, 8), 10, depth=10, width=1)
    before = copy.deepcopy(model.state_dict())
    pretrain(model, WideResNet.features, PowerLawSpectra(8), dataclasses.replace(TINY, steps=2, weight_decay=0))
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]) == name.startswith("head."), name


def test_a_few_steps_lower_the_loss_and_tell_views_of_one_image_from_others():
    view = ContrastiveView(size=12)
    settings = dataclasses.replace(
        TINY, steps=120, batch=64, warm_up=5, projection=32, dimensions=16, pool=512, view=view, learning_rate=0.1
    )
    process = PowerLawSpectra(12)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.GroupNorm(4, 16), nn.ReLU(),
        nn.Conv2d(16, 32, 3), nn.GroupNorm(4, 32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip

    @torch.no_grad()
    def separation():
        generator = torch.Generator().manual_seed(5)
        images = process.sample(200, generator)
        points = [model(view(images, generator)) for _ in range(2)]
        first, second = (nn.functional.normalize(p - p.mean(0), dim=1) for p in points)
        products = first @ second.t()
        return float(products.diagonal().mean() - products.mean())

    before = separation()
    losses = pretrain(model, nn.Module.__call__, process, settings)
    assert len(losses) == 120
    assert sum(losses[-10:]) / 10 < sum(losses[:10]) / 10 - 0.4
    assert separation() > before + 0.06


def test_the_seed_decides_everything_and_the_global_one_nothing():
    runs = []
    for seed, other in ((0, 1), (0, 2), (1, 1)):
        model = tiny_backbone()
        torch.manual_seed(other)
        runs.append(
            pretrain(model, nn.Module.__call__, PowerLawSpectra(8), dataclasses.replace(TINY, steps=3, seed=seed))
        )
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_progress_is_told_every_step_and_the_mode_is_kept():
    model, seen = tiny_backbone().eval(), []
    losses = pretrain(
        model,
        nn.Module.__call__,
        PowerLawSpectra(8),
        TINY,
        progress=lambda step, loss: seen.append((step, float(loss))),
    )
    assert [(step, float(loss)) for step, loss in seen] == list(enumerate(losses, start=1))
    assert not model.training


def test_the_rate_rises_and_falls():
    settings = Pretraining(steps=100, warm_up=10, batch=512)
    assert settings.peak_rate == pytest.approx(0.24)
    assert settings.rate_factor(0) == pytest.approx(0.1)
    assert settings.rate_factor(9) == pytest.approx((1 + math.cos(0.09 * math.pi)) / 2)
    assert settings.rate_factor(100) == 0
    assert Pretraining(warm_up=0, learning_rate=1.5).peak_rate == 1.5


def test_the_pool_replaces_its_oldest_images_and_gives_different_ones():
    class Counting:
        size = 4

        def __init__(self):
            self.drawn = 0

        def sample(self, count, generator):
            numbers = torch.arange(self.drawn, self.drawn + count) % 256
            self.drawn += count
            return (numbers / 255).view(-1, 1, 1, 1).expand(-1, 3, 4, 4)

    pool = _Pool(Counting(), TINY, torch.Generator().manual_seed(0))
    seen = [(255 * pool.next_batch()[:, 0, 0, 0]).round().to(torch.int64) for _ in range(40)]
    for step, numbers in enumerate(seen, start=1):
        assert len(set(numbers.tolist())) == 16
        replaced = 16 * math.ceil(step / 4)
        assert numbers.min() >= replaced
        assert numbers.max() < 48 + replaced
    uses = torch.bincount(torch.cat(seen), minlength=256)[48:160].double()
    assert abs(uses.mean() - 4) < 0.5


def test_features_come_in_chunks_without_gradients():
    model = wide_resnet((3, 8, 8), 10, depth=10, width=1)
    images = torch.rand(7, 3, 8, 8)
    whole = features(model, images)
    assert whole.shape == (7, 64)
    assert not whole.requires_grad
    assert model.training
    torch.testing.assert_close(features(model, images, batch=3), whole)
    torch.testing.assert_close(whole, model.features(images).detach())
    maps = features(model, images, embedding=WideResNet.trunk, batch=2)
    torch.testing.assert_close(model.readout()(maps), model(images))
    assert features(model, images[:0]).shape == (0, 64)
    with pytest.raises(InputError, match="batch=0"):
        features(model, images, batch=0)


@pytest.mark.parametrize("learn", ["maps", "features"])
def test_a_prior_is_trained_saved_and_loaded(tmp_path, learn):
    config = NoisePrior(
        backbone=Backbone(depth=10, width=1, side=8), process=PowerLawSpectra(16), learn=learn, training=TINY
    )
    model = pretrain_on_noise(config, device="cpu", out=tmp_path / "prior")
    loaded = load_prior(tmp_path / "prior")
    images = torch.rand(2, 3, 8, 8)
    torch.testing.assert_close(loaded(images), model(images))
    assert loaded.centre
    record = json.loads((tmp_path / "prior" / "run.json").read_text())
    assert record["training"]["seed"] == 0
    assert record["training"]["steps"] == 12
    assert record["hardware"]["device"] == "cpu"
    assert record["private_data"] == "none"
    assert "PowerLawSpectra" in record["process"]
    assert math.isfinite(record["loss"])
    assert {"created", "seconds", "versions", "backbone"} <= set(record)
    with pytest.raises(InputError, match="already holds a run"):
        pretrain_on_noise(config, device="cpu", out=tmp_path / "prior")


@pytest.mark.parametrize("part", ["all", "readout"])
def test_a_prior_and_its_readout_have_gradients_of_each_example(part):
    model = Backbone(depth=10, width=1, side=8).build(0).double()
    images, labels = torch.rand(4, 3, 8, 8, dtype=torch.float64), torch.arange(4)
    trained = model if part == "all" else model.readout()
    inputs = images if part == "all" else features(model, images, embedding=WideResNet.trunk)
    sums = [
        clipped_grad(trained, classification_loss, clipping=Flat(0.1), engine=engine)(inputs, labels).grads
        for engine in ("reference", "bookkeeping")
    ]
    assert set(sums[0]) == {name for name, _ in trained.named_parameters()}
    for name, value in sums[0].items():
        torch.testing.assert_close(sums[1][name], value)


def test_backbones_are_fixed_by_their_seed_alone():
    backbone = Backbone(depth=10, width=1, side=8)
    state = torch.get_rng_state()
    first = backbone.build(0).state_dict()
    assert torch.equal(state, torch.get_rng_state())
    second = backbone.build(0).state_dict()
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert not torch.equal(first["stem.weight"], backbone.build(1).state_dict()["stem.weight"])


def test_what_is_no_prior_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no weights that are known to be public"):
        load_prior(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    for record, said in (('{"kind": "training"}', "kind"), ("[]", "no object"), ("{", "JSONDecodeError")):
        (tmp_path / "run.json").write_text(record)
        with pytest.raises(InputError, match=said):
            load_prior(tmp_path)


def test_weights_that_do_not_say_what_they_were_trained_on_are_no_prior(tmp_path):
    folder = tmp_path / "prior"
    config = NoisePrior(backbone=Backbone(depth=10, width=1, side=8), process=PowerLawSpectra(16), training=TINY)
    pretrain_on_noise(config, device="cpu", out=folder)
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    facts = prior_facts(folder)
    assert (facts["weights_sha256"], facts["training"]["steps"]) == (digest, TINY.steps)
    record = json.loads((folder / "run.json").read_text())
    for changes in ({"private_data": "photographs"}, {"process": None}):
        left = {name: changes.get(name, value) for name, value in record.items()}
        (folder / "run.json").write_text(json.dumps({name: value for name, value in left.items() if value is not None}))
        with pytest.raises(InputError, match=r"private_data|process"):
            load_prior(folder)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Pretraining(steps=0), "steps=0"),
        (lambda: Pretraining(batch=1), "batch=1: must be at least 2. Uniformity compares"),
        (lambda: Pretraining(pool=100), "pool=100: must be at least 1024. The pool holds"),
        (lambda: Pretraining(reuse=0), "reuse=0"),
        (lambda: Pretraining(learning_rate=0.0), "learning_rate=0.0"),
        (lambda: Pretraining(weight_decay=-1), "weight_decay=-1"),
        (lambda: Pretraining(uniformity_weight=-1), "uniformity_weight=-1"),
        (lambda: NoisePrior(learn="head"), "learn='head': must be one of features, maps"),
        (lambda: NoisePrior(backbone=Backbone(side=16)), "view=32 pixels: must be 16, the backbone's side"),
    ],
)
def test_bad_input(build, message):
    with pytest.raises(InputError, match=message):
        build()
