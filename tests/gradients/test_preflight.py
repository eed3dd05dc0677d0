"""The preflight passes on good models, leaves them as they were, and refuses what an engine would get wrong."""

import copy

import pytest
import torch
import torch.nn.functional as F
from layer_cases import squared_outputs
from torch import nn

import tacit
from tacit.clipping import Automatic, Flat, PerLayer
from tacit.core.errors import InputError, UnsupportedError
from tacit.gradients import clipped_grad, contributions, preflight
from tacit.gradients.layers import linear

EVERY_ENGINE = pytest.mark.parametrize("engine", ["reference", "functional", "bookkeeping", "auto"])


def grad_of(model, loss_fn=squared_outputs, engine="bookkeeping", clipping=None):
    return clipped_grad(model, loss_fn, clipping=clipping or Flat(0.5), engine=engine)


def network(*between):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), *between, nn.Tanh(), nn.Linear(8, 3))


def inputs(dtype=torch.float32):
    torch.manual_seed(1)
    return torch.randn(5, 6, dtype=dtype)


GOOD = {
    "plain": network,
    "dropout": lambda: network(nn.Dropout(0.5)),
    "norm": lambda: network(nn.LayerNorm(8), nn.Dropout(0.2)),
    "frozen batch norm": lambda: network(nn.BatchNorm1d(8).eval()),
    "unused parameter": lambda: nn.ModuleDict({"used": network(), "unused": nn.Linear(2, 2)}),
}


def apply(model, x):
    return squared_outputs(model["used"] if isinstance(model, nn.ModuleDict) else model, x)


@EVERY_ENGINE
@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_good_models_pass_and_are_left_as_they_were(engine, name, dtype):
    model = GOOD[name]().to(dtype)
    before = copy.deepcopy(model.state_dict())
    modes = {key: module.training for key, module in model.named_modules()}
    x, generator = inputs(dtype), torch.get_rng_state()
    assert preflight(grad_of(model, apply, engine), x) is None
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert {key: module.training for key, module in model.named_modules()} == modes
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("clipping", [Flat(1e-3), Flat(1e6), PerLayer(0.1), Automatic(1.0)], ids=repr)
def test_every_clipping_passes(clipping):
    tacit.preflight(grad_of(network(), clipping=clipping), inputs())


@pytest.mark.parametrize("examples", [0, 1, 2])
def test_small_batches_pass(examples):
    preflight(grad_of(network()), inputs()[:examples])


def drawing(x):
    """The same values, but a pass that draws random numbers cannot be compared with one over fewer examples."""
    return x + 0 * torch.rand_like(x)


class TimesBatchSize(nn.Module):
    """Mixes examples only through how many there are, where the probe cannot see it."""

    def forward(self, x):
        return drawing(x) * x.shape[0]


def test_pitfall_12_mixing_that_the_probe_misses_is_refused_by_the_parameters_name():
    model = network(TimesBatchSize())
    grad_of(model)(inputs())  # the probe has nothing against it
    with pytest.raises(
        UnsupportedError, match=r"^0\.weight: the bookkeeping engine's gradient differs from that of one"
    ):
        preflight(grad_of(model), inputs())
    preflight(grad_of(model, engine="functional"), inputs())


@pytest.mark.parametrize("bound", [1e-4, 1e4])
def test_pitfall_12_a_loss_over_the_batch_size_is_refused_although_clipping_hides_it(bound):
    """Where every gradient is clipped the sums agree, and only the norms tell."""

    def mean(model, x):
        return 100 * squared_outputs(model, drawing(x)) / len(x)

    model = network()
    grad_of(model, mean)(inputs())
    with pytest.raises(UnsupportedError, match=r"^(loss|0\.weight): the bookkeeping engine's gradient") as caught:
        preflight(grad_of(model, mean, clipping=Flat(bound)), inputs())
    assert "\n" not in str(caught.value)
    if bound < 1:
        assert str(caught.value).startswith("loss: the bookkeeping engine's gradient norms differ")


def test_examples_that_are_all_equal_do_not_hide_mixing():
    x = inputs()
    batch = torch.cat([x[:1].expand(6, -1), x])
    with pytest.raises(UnsupportedError, match=r"mixes examples"):
        preflight(grad_of(network(TimesBatchSize())), batch)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gradients_that_are_zero_pass(dtype):
    """Of several tokens each, so that their norms hold an allowance for rounding."""
    model = nn.Linear(4, 3).to(dtype)
    grad = clipped_grad(model, lambda model, x: 0 * model(x).sum((1, 2)), clipping=Flat(1.0), strategy="gram")
    preflight(grad, torch.randn(5, 6, 4, dtype=dtype))


@pytest.mark.parametrize(
    "break_it",
    [
        lambda patch: patch.setattr(linear.LINEAR.contribute, "__code__", _half_bias.__code__),
        lambda patch: patch.setattr(contributions.Outer, "weighted_sum", lambda self, w, f: self.write_out().sum(0)),
    ],
    ids=["bias halved", "weights not clipped"],
)
def test_a_wrong_rule_is_refused(break_it, monkeypatch):
    break_it(monkeypatch)
    with pytest.raises(
        UnsupportedError, match=r"^[02]\.(weight|bias): (the book\S+ engine's|its) gradients? (dif|do not)"
    ):
        preflight(grad_of(network(), clipping=Flat(0.5)), inputs())


def _half_bias(call, grad, layout):
    grads = layout.tokens(grad)
    return {
        "weight": lambda: _outer(grads, layout.tokens(call.inputs["input"]), call.parameters["weight"].shape),  # noqa: F821
        "bias": lambda: Direct(grads.sum(1) / 2),  # noqa: F821
    }


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(8))
        self.register_buffer("undefined", torch.full((2,), torch.nan))
        self.register_buffer("flags", torch.zeros(2, dtype=torch.bool))

    def forward(self, x):
        self.seen.add_(x.detach().mean(0))
        return x


@pytest.mark.parametrize("engine", ["reference", "bookkeeping"])
def test_pitfall_25_a_buffer_that_takes_raw_data_is_refused_and_restored(engine):
    model = network(Remembers())
    with pytest.raises(UnsupportedError, match=r"^1\.seen: the forward pass writes to it, which lets raw data in"):
        preflight(grad_of(model, engine=engine), inputs())
    assert torch.equal(model[1].seen, torch.zeros(8))


def test_a_buffer_is_restored_where_the_step_fails():
    model = network(Remembers())
    with pytest.raises(InputError, match="scalar"):
        preflight(grad_of(model, lambda m, x: m(x).sum()), inputs())
    assert torch.equal(model[1].seen, torch.zeros(8))


def test_pitfall_26_a_parameter_that_the_forward_pass_writes_to_is_refused():
    class Renormalises(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.randn(7, 3))

        def forward(self, ids):
            return F.embedding(ids, self.table, max_norm=0.5)

    with pytest.raises(UnsupportedError, match=r"^table: the forward pass writes to it"):
        preflight(grad_of(Renormalises(), engine="reference"), torch.randint(0, 7, (4, 3)))


def test_modes_are_set_without_calling_train_or_eval():
    """Some layers merge weights in ``eval()``; the preflight must not trigger that."""

    class Merging(nn.Linear):
        def train(self, mode=True):
            raise AssertionError("the mode of the user's model was switched")

    model = nn.Sequential(Merging(6, 3), nn.Dropout(0.5))
    preflight(grad_of(model), inputs())
    assert model.training
    assert model[0].training
