"""Layers that mix examples or let raw data into a model's state are refused by name, in every engine."""

import pytest
import torch
from layer_cases import squared_outputs
from torch import nn

from tacit.clipping import Flat
from tacit.core.errors import UnsupportedError
from tacit.gradients import clipped_grad
from tacit.models import replace_batchnorm

EVERY_ENGINE = pytest.mark.parametrize("engine", ["reference", "functional", "bookkeeping", "auto"])


def grad_of(model, engine):
    return clipped_grad(model, squared_outputs, clipping=Flat(0.5), engine=engine)


def convolutional(norm):
    return nn.Sequential(nn.Conv2d(3, 4, 2), nn.Sequential(norm), nn.Flatten())


def images():
    torch.manual_seed(0)
    return torch.randn(4, 3, 5, 5)


BATCH_NORMS = {
    "BatchNorm2d": lambda: nn.BatchNorm2d(4),
    "BatchNorm2d without statistics": lambda: nn.BatchNorm2d(4, track_running_stats=False).eval(),
    "BatchNorm2d without weights": lambda: nn.BatchNorm2d(4, affine=False),
    "BatchNorm2d frozen weights": lambda: nn.BatchNorm2d(4).requires_grad_(False),
    "SyncBatchNorm": lambda: nn.SyncBatchNorm(4),
}


@EVERY_ENGINE
@pytest.mark.parametrize("kind", BATCH_NORMS)
def test_pitfall_25_batch_norm_is_refused_by_name_with_the_remedy(engine, kind):
    model = convolutional(BATCH_NORMS[kind]())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    message = rf"^1\.0 \({kind.split()[0]}\): normalises an example by the others .*replace_batchnorm\(model\)"
    with pytest.raises(UnsupportedError, match=message) as caught:
        grad_of(model, engine)(images())
    assert "\n" not in str(caught.value)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@EVERY_ENGINE
def test_pitfall_25_the_remedy_works(engine):
    model = replace_batchnorm(convolutional(nn.BatchNorm2d(4)))
    assert float(grad_of(model, engine)(images()).unsafe_norms.min()) > 0


@EVERY_ENGINE
def test_pitfall_25_a_layer_that_is_put_back_in_training_mode_is_refused_later(engine):
    model = convolutional(nn.BatchNorm2d(4)).eval()
    grad = grad_of(model, engine)
    grad(images())
    model.train()
    with pytest.raises(UnsupportedError, match=r"^1\.0 \(BatchNorm2d\)"):
        grad(images())


@EVERY_ENGINE
def test_pitfall_25_frozen_statistics_are_bit_identical_after_a_step(engine):
    model = convolutional(nn.BatchNorm2d(4))
    with torch.no_grad():
        model(images())  # statistics of some public data
    model[1].eval()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    grad_of(model, engine)(images() * 3)
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
    assert before["1.0.running_mean"].abs().max() > 0


@EVERY_ENGINE
def test_pitfall_25_instance_norm_may_not_copy_statistics_into_buffers(engine):
    norm = nn.InstanceNorm2d(4, affine=True, track_running_stats=True)
    with pytest.raises(UnsupportedError, match=r"^1\.0 \(InstanceNorm2d\): copies statistics of raw data into its buf"):
        grad_of(convolutional(norm), engine)(images())
    grad_of(convolutional(norm).eval(), engine)(images())
    grad_of(convolutional(nn.InstanceNorm2d(4, affine=True)), engine)(images())


def words():
    torch.manual_seed(0)
    return torch.randint(0, 7, (4, 5))


@EVERY_ENGINE
@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"max_norm": 0.1},
            "max_norm rewrites rows of the table in the forward pass, without noise. Build it with max",
        ),
        ({"scale_grad_by_freq": True}, "scale_grad_by_freq divides by counts over the whole batch. Build it with"),
    ],
    ids=["max_norm", "scale_grad_by_freq"],
)
def test_pitfall_26_batch_dependent_embeddings_are_refused(engine, layer, options, message):
    model = nn.Sequential(layer(7, 3, **options), nn.Tanh())
    before = model[0].weight.detach().clone()
    with pytest.raises(UnsupportedError, match=rf"^0 \({layer.__name__}\): {message}"):
        grad_of(model, engine)(words())
    assert torch.equal(model[0].weight, before)


class Functional(nn.Module):
    """The same by a call of the function, which no module betrays."""

    def __init__(self, function, **options):
        super().__init__()
        self.table = nn.Parameter(torch.randn(7, 3))
        self.function, self.options = function, options

    def forward(self, ids):
        return self.function(ids, self.table, **self.options)


@pytest.mark.parametrize("function", [nn.functional.embedding, nn.functional.embedding_bag])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_norm": 0.1}, r"max_norm=0\.1\): renormalises rows of the table"),
        ({"scale_grad_by_freq": True}, r"scale_grad_by_freq=True\): divides by counts over the whole batch"),
    ],
    ids=["max_norm", "scale_grad_by_freq"],
)
def test_pitfall_26_bookkeeping_refuses_the_functions_too(function, options, message):
    with pytest.raises(UnsupportedError, match=rf"^Embedding(Bag)?\({message}"):
        grad_of(Functional(function, **options), "bookkeeping")(words())


def test_bags_of_different_lengths_are_refused():
    model = Functional(nn.functional.embedding_bag, offsets=torch.tensor([0, 2]))
    with pytest.raises(UnsupportedError, match=r"^EmbeddingBag\(offsets=…\): .*padding_idx"):
        grad_of(model, "bookkeeping")(torch.randint(0, 7, (4,)))


def test_a_layer_that_has_its_examples_elsewhere_is_refused():
    """A pointwise convolution over the batch as if it were a length."""

    class Sideways(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv1d(4, 3, 1)

        def forward(self, x):
            return self.layer(x.t()[None])[0].t()

    x = torch.randn(5, 4)
    with pytest.raises(UnsupportedError, match=r"^layer: its examples are in dimension 2 of the output"):
        grad_of(Sideways(), "bookkeeping")(x)
    assert grad_of(Sideways(), "auto")(x).unsafe_norms.min() > 0
