"""What clipped_grad is given and must refuse, in one clear line; and what it takes although it looks unusual."""

import collections

import pytest
import torch
import torch.nn.functional as F
from input_checks import EVERY_ENGINE, assert_one_line, build, losses
from torch import nn

import tacit
from tacit.clipping import PerLayer
from tacit.core.errors import InputError, UnsupportedError
from tacit.core.privacy import Neighbours
from tacit.gradients import clipped_grad


@EVERY_ENGINE
@pytest.mark.parametrize(
    ("loss_fn", "message"),
    [
        (lambda m, x, y: F.cross_entropy(m(x), y), r"^loss_fn returned a scalar for a batch of \d: .*reduction='none'"),
        (lambda m, x, y: losses(m, x, y).sum(), r"^loss_fn returned a scalar for a batch of \d: "),
        (lambda m, x, y: losses(m, x, y)[:, None], r"^loss_fn returned shape \(\d, 1\) for a batch of (\d): must be"),
        (lambda m, x, y: m(x), r"^loss_fn returned shape \(\d, 3\) for a batch of (\d): .*Sum or average over"),
        (lambda m, x, y: losses(m, x, y).repeat(2), r"^loss_fn returned shape \(\d+,\) for a batch of (\d): must be"),
        (lambda m, x, y: [0.0] * len(x), r"^loss_fn returned list: must return a tensor with one loss"),
        (lambda m, x, y: None, r"^loss_fn returned NoneType: must return a tensor"),
    ],
    ids=["mean", "sum", "column", "outputs", "too many", "list", "none"],
)
def test_a_loss_that_is_not_one_an_example(engine, loss_fn, message, batch):
    with pytest.raises(InputError, match=message) as caught:
        build(engine, loss_fn)(*batch)
    assert_one_line(caught)


@EVERY_ENGINE
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(4, dtype=torch.bool), r"^mask of shape \(4,\) and type torch.bool: must be \(5,\) of torch.bool"),
        (torch.ones(5, 1, dtype=torch.bool), r"^mask of shape \(5, 1\) and type torch.bool: must be \(5,\)"),
        (torch.ones(5), r"^mask of shape \(5,\) and type torch.float32: must be \(5,\) of torch.bool"),
        (torch.ones(5, dtype=torch.int64), r"^mask of shape \(5,\) and type torch.int64"),
        ([True] * 5, r"^mask of type list: must be a tensor of torch.bool, one for each of the 5 examples"),
    ],
    ids=["short", "column", "float", "integer", "list"],
)
def test_a_mask_that_is_not_one_flag_an_example(engine, mask, message, batch):
    with pytest.raises(InputError, match=message) as caught:
        build(engine)(*batch, mask=mask)
    assert_one_line(caught)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda x, y: (x, y[:3]),
            r"^batch: first dimensions are \[3, 5\]\. All tensors of a batch must have one number",
        ),
        (lambda x, y: ({"x": x, "more": x[:2]}, y), r"^batch: first dimensions are \[2, 5\]"),
        (lambda x, y: (x, torch.tensor(1)), r"^batch: holds a tensor with no dimension\. Give every tensor"),
        (lambda x, y: (1, "a"), r"^batch=\(1, 'a'\): must contain tensors"),
        (lambda x, y: (), r"^batch=\(\): must contain tensors"),
    ],
    ids=["lengths", "nested lengths", "no dimension", "no tensor", "nothing"],
)
def test_a_batch_whose_tensors_disagree(spoil, message, batch):
    with pytest.raises(InputError, match=message) as caught:
        build()(*spoil(*batch))
    assert_one_line(caught)


def test_a_model_without_trainable_parameters():
    with pytest.raises(InputError, match=r"^model: has no trainable parameter\. Set requires_grad"):
        build(model=nn.Linear(4, 3).requires_grad_(False))
    with pytest.raises(InputError, match=r"^model: has no trainable parameter"):
        build(model=nn.Tanh())


@EVERY_ENGINE
def test_pitfall_29_another_set_of_trainable_parameters_needs_another_call(engine, batch):
    grad = build(engine)
    grad(*batch)
    grad.model.bias.requires_grad_(False)
    with pytest.raises(InputError, match=r"^model: its set of trainable parameters has changed since clipped_grad"):
        grad(*batch)
    assert list(build(engine, model=grad.model)(*batch).grads) == ["weight"]


@EVERY_ENGINE
def test_complex_parameters_are_refused(engine):
    class Complex(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 3, dtype=torch.complex64))

        def forward(self, x):
            return (x.to(torch.complex64) @ self.weight).abs()

    with pytest.raises(UnsupportedError, match=r"^weight: is complex, and norms and noise are those of real numbers"):
        build(engine, model=Complex())


def test_unknown_engines_and_chunk_sizes():
    with pytest.raises(InputError, match=r"^engine='fast': must be one of auto, bookkeeping, functional, reference\.$"):
        build("fast")
    for size in (0, -1):
        with pytest.raises(InputError, match=rf"^chunk_size={size}: must be at least 1"):
            build(chunk_size=size)
    with pytest.raises(InputError, match=r"^chunk_size=1\.5: must be a whole number"):
        build(chunk_size=1.5)


@EVERY_ENGINE
def test_gradients_are_computed_where_the_caller_has_switched_them_off(engine, batch):
    expected = build(engine)(*batch)
    with torch.no_grad():
        out = build(engine)(*batch)
    assert torch.equal(out.grads["weight"], expected.grads["weight"])
    assert float(out.grads["weight"].abs().max()) > 0


Pair = collections.namedtuple("Pair", ["x", "y"])


@EVERY_ENGINE
@pytest.mark.parametrize(
    ("wrap", "loss_fn"),
    [
        (lambda x, y: (Pair(x, y),), lambda m, pair: losses(m, pair.x, pair.y)),
        (lambda x, y: ({"x": x, "y": y},), lambda m, d: losses(m, d["x"], d["y"])),
        (lambda x, y: (collections.UserDict(x=x, y=y),), lambda m, d: losses(m, d["x"], d["y"])),
        (lambda x, y: ([x, (y, None)], 2.0), lambda m, tree, factor: losses(m, tree[0], tree[1][0]) * factor / 2),
    ],
    ids=["named tuple", "dict", "mapping", "tree with numbers"],
)
def test_batches_are_trees_of_any_kind(engine, wrap, loss_fn, batch):
    out = build(engine, loss_fn)(*wrap(*batch))
    expected = build("reference")(*batch)
    torch.testing.assert_close(out.grads["weight"], expected.grads["weight"])


@EVERY_ENGINE
def test_the_model_and_its_gradients_are_left_alone(engine, batch):
    grad = build(engine)
    before = {name: value.clone() for name, value in grad.model.state_dict().items()}
    grad.model.weight.grad = torch.full((3, 4), 7.0)
    out = grad(*batch)
    assert type(grad.model) is nn.Linear
    assert all(torch.equal(value, before[name]) for name, value in grad.model.state_dict().items())
    assert torch.equal(grad.model.weight.grad, torch.full((3, 4), 7.0))
    assert grad.model.bias.grad is None
    assert not any(value.requires_grad for value in out.grads.values())


@EVERY_ENGINE
def test_norms_outside_the_mask_are_zero(engine, batch):
    mask = torch.tensor([True, False, True, False, True])
    norms = build(engine)(*batch, mask=mask).unsafe_norms
    assert norms.shape == (5, 1)
    assert norms.dtype == torch.float64
    assert torch.equal(norms[:, 0] > 0, mask)


def test_the_interface(batch):
    grad = tacit.clipped_grad(nn.Linear(4, 3), losses, clipping=tacit.clipping.Flat(0.1), engine="auto")
    out = grad(*batch)
    assert set(out.grads) == {"weight", "bias"}
    assert grad.sensitivity(tacit.Neighbours.ADD_REMOVE) == 0.1
    assert grad.sensitivity(Neighbours.ZERO_OUT) == 0.1
    assert grad.sensitivity(Neighbours.REPLACE_ONE) == 0.2
    layered = clipped_grad(
        nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), losses, clipping=PerLayer({"0": 3.0, "1": 4.0})
    )
    assert layered.sensitivity(Neighbours.ADD_REMOVE) == 5.0
