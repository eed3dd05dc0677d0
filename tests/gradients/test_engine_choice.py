"""What an engine does not cover it writes out, or refuses by name with the remedy; auto takes it and says so."""

import re

import pytest
import torch
import torch.utils.checkpoint
from input_checks import assert_one_line, build, losses
from torch import Tensor, nn

from tacit.clipping import Flat
from tacit.core.errors import UnsupportedError
from tacit.gradients import clipped_grad


class TwoInputs(nn.Module):
    """Bilinear: a layer without a rule."""

    def __init__(self):
        super().__init__()
        self.both = nn.Bilinear(4, 4, 3)

    def forward(self, x):
        return self.both(x, torch.tanh(x))


class Einsum(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(3, 4))

    def forward(self, x):
        return torch.einsum("bi,oi->bo", x, self.table)


class Divided(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.temperature = nn.Linear(4, 3), nn.Parameter(torch.tensor([2.0]))

    def forward(self, x):
        return self.layer(x) / self.temperature


class Scripted(nn.Module):
    """A custom autograd function is invisible to an observer of torch functions."""

    class Scale(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x, weight):
            return x * weight

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            return grad * weight, (grad * x).sum_to_size(weight.shape)

    def __init__(self):
        super().__init__()
        self.layer, self.hidden = nn.Linear(4, 3), nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.Scale.apply(self.layer(x), self.hidden)


class Checkpointed(nn.Module):
    """Recomputes a layer in the backward pass, where nobody observes it and other tensors are saved."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        hidden = torch.utils.checkpoint.checkpoint(lambda v: torch.tanh(self.first(v)), x, use_reentrant=False)
        return self.second(hidden)


class WritesInPlace(nn.Module):
    """A parameter that enters by assignment to a slice."""

    def __init__(self):
        super().__init__()
        self.layer, self.token = nn.Linear(4, 3), nn.Parameter(torch.ones(1))

    def forward(self, x):
        out = self.layer(x).clone()
        out[:, :1] = self.token * 2
        return out


class Sideways(Einsum):
    """The examples come out in the second dimension."""

    def forward(self, x):
        return torch.einsum("bi,oi->ob", x, self.table).T


WRITTEN_OUT = {
    "bilinear": (TwoInputs, r"\(both\.bias, both\.weight by torch\.nn\.functional\.bilinear\), at \d+ numbers"),
    "einsum": (Einsum, r"\(table by torch\.functional\.einsum\), at 12 numbers an example$"),
    "division": (Divided, r"\(temperature by torch\.Tensor\.\w*div\w*\), at 1 numbers an example$"),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_pitfall_30_a_layer_without_a_rule_is_written_out_alone_and_named(name, batch):
    make, message = WRITTEN_OUT[name]
    torch.manual_seed(0)
    model = make().double()
    x, y = batch[0].double(), batch[1]
    grad = build("auto", model=model)
    out = grad(x, y, mask=torch.tensor([True, True, False, True, True]))
    assert grad.engine == "bookkeeping"
    assert re.search(message, grad.engine_reason)
    expected = build("reference", model=model)(x, y, mask=torch.tensor([True, True, False, True, True]))
    torch.testing.assert_close(out.unsafe_norms, expected.unsafe_norms, rtol=1e-9, atol=1e-9)
    for parameter, value in expected.grads.items():
        torch.testing.assert_close(out.grads[parameter], value, rtol=1e-9, atol=1e-9)


UNSUPPORTED = {
    "sideways": (Sideways, r"table: used by torch\.functional\.einsum, which has no layer rule"),
    "custom function": (Scripted, r"hidden: reaches the loss through an operation that cannot be observed"),
    "in-place": (WritesInPlace, r"token: reaches the loss through an operation that cannot be observed"),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", UNSUPPORTED)
def test_pitfall_30_what_has_no_rule_is_refused_by_name_and_auto_takes_functional(name, batch):
    make, message = UNSUPPORTED[name]
    torch.manual_seed(0)
    model = make().double()
    x, y = batch[0].double(), batch[1]
    with pytest.raises(UnsupportedError, match=f"^{message}.*engine='functional'") as caught:
        build("bookkeeping", model=model)(x, y)
    assert_one_line(caught)
    grad = build("auto", model=model)
    assert grad.engine == "auto"
    out = grad(x, y)
    assert grad.engine == "functional"
    assert grad.engine_reason == f"functional, because book-keeping refused {caught.value}"
    expected = build("reference", model=model)(x, y)
    for parameter, value in expected.grads.items():
        torch.testing.assert_close(out.grads[parameter], value, rtol=1e-9, atol=1e-9)


def test_checkpointing_is_refused_and_the_reference_takes_it(batch):
    x, y = batch[0].double(), batch[1]
    model = Checkpointed().double()
    with pytest.raises(UnsupportedError, match=r"^first\.(weight|bias): its gradients do not add up to autograd's own"):
        build("bookkeeping", model=model)(x, y)
    with pytest.raises(UnsupportedError, match=r"^model: torch\.func cannot transform it .*Use engine='reference'"):
        build("auto", model=model)(x, y)
    out = build("reference", model=model)(x, y)
    model.forward = lambda v: model.second(torch.tanh(model.first(v)))
    expected = build("bookkeeping", model=model)(x, y)
    torch.testing.assert_close(out.grads["first.weight"], expected.grads["first.weight"], rtol=1e-9, atol=1e-12)


def test_auto_says_why_it_took_bookkeeping(batch):
    grad = build()
    assert grad.engine_reason == "engine='auto' was asked for"
    grad(*batch)
    assert grad.engine == "bookkeeping"
    assert grad.engine_reason == "bookkeeping, because every trainable parameter is covered by a layer rule"
    assert build("functional").engine_reason == "engine='functional' was asked for"


def test_auto_falls_back_when_a_later_batch_is_refused(batch):
    def loss_fn(model, x, y, squared):
        if not squared:
            return losses(model, x, y)
        return losses(lambda v: torch.einsum("bi,oi->ob", v, model.weight).T, x, y)

    grad = build(loss_fn=loss_fn)
    grad(*batch, False)
    assert grad.engine == "bookkeeping"
    out = grad(*batch, True)
    assert grad.engine == "functional"
    expected = build("reference", loss_fn)(*batch, True)
    torch.testing.assert_close(out.grads["weight"], expected.grads["weight"])


class DependsOnValues(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.other = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x) if float(x.detach().sum()) > 0 else self.other(x)


def test_control_flow_that_depends_on_values_leaves_the_reference_as_the_remedy(batch):
    with pytest.raises(UnsupportedError, match=r"^model: torch\.func cannot transform it .*Use engine='ref") as caught:
        build("functional", model=DependsOnValues())(*batch)
    assert_one_line(caught)
    out = build("reference", model=DependsOnValues())(*batch)
    assert float(out.unsafe_norms.min()) > 0


def test_an_example_whose_loss_uses_no_parameter_contributes_zero_in_the_reference(batch):
    def loss_fn(model, x, y):
        return losses(model, x, y) if int(y) else torch.zeros(1)

    x, y = batch[0], torch.tensor([0, 1, 2, 0, 1])
    out = build("reference", loss_fn)(x, y)
    assert torch.equal(out.unsafe_norms[:, 0] == 0, y == 0)


class Steps(nn.Module):
    """A cell that a loop of Python calls for one time step after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(len(x), 6)
        for step in x.unbind(1):
            state = self.cell(state + step).tanh()
        return state


@pytest.mark.parametrize(
    ("model", "shape", "tokens"),
    [
        (nn.Linear(6, 2), (6,), 1),
        (nn.Linear(6, 2), (5, 6), 5),
        (nn.Linear(6, 2), (5, 3, 6), 15),
        (nn.Sequential(nn.Linear(6, 2), nn.Flatten(), nn.Linear(10, 400)), (5, 6), 1),  # most of the work is the last
        (nn.Sequential(nn.Linear(6, 40), nn.Flatten(), nn.Linear(200, 1)), (5, 6), 5),
        (nn.Conv1d(6, 3, 2), (6, 9), 1),
        (Steps(), (5, 6), 1),
    ],
)
def test_an_examples_tokens_are_those_of_the_layers_that_do_most_of_the_work(model, shape, tokens):
    grad = clipped_grad(model, lambda model, x: model(x).flatten(1).sum(1), clipping=Flat(1.0))
    assert grad.tokens == 1
    grad(torch.randn(4, *shape))
    assert grad.tokens == tokens
    assert grad.engine == "bookkeeping"
