"""Whatever couples the examples of a batch is refused by book-keeping, and harmless in engines that run each alone."""

import pytest
import torch
from layer_cases import squared_outputs
from torch import nn

from tacit.clipping import Flat
from tacit.core.errors import UnsupportedError
from tacit.gradients import clipped_grad, engines

BOUND = Flat(0.7)


class TwoLayers(nn.Module):
    """``first``, then ``between``, then ``second``; ``before`` sees the raw input and ``after`` the output."""

    def __init__(self, before=None, between=None, after=None):
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 2)
        self.before, self.between, self.after = before, between, after

    def forward(self, x):
        x = self.before(x) if self.before else x
        x = torch.tanh(self.first(x))
        x = self.between(x) if self.between else x
        x = self.second(x)
        return self.after(x) if self.after else x


class InTrainingOnly(nn.Module):
    """A hand-made normalisation by batch statistics that are detached, in training mode alone."""

    def forward(self, x):
        return x - x.detach().mean(0) if self.training else x


class BatchDependentWeight(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.gate = nn.Linear(4, 3), nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.layer(x) * (self.gate * x.mean())


class ZeroHead(nn.Module):
    """The tokens of all examples in one long row, token by token, before a head that starts at zero.

    At the start no gradient gets past the head, so that autograd sees nothing of the layer before it.
    """

    def __init__(self, body=lambda x: x):
        super().__init__()
        self.mix, self.head = nn.Linear(4, 3), nn.Linear(3, 2)
        self.body = body
        nn.init.zeros_(self.head.weight)

    def forward(self, x):
        examples, tokens, _ = x.shape
        rows = self.body(self.mix(x.transpose(0, 1).reshape(-1, 4)))
        return self.head(torch.tanh(rows.view(tokens, examples, 3).transpose(0, 1)))


class TwiceZero(nn.Module):
    """Two factors that start at zero hide what happens before them from every gradient."""

    def __init__(self):
        super().__init__()
        self.layer, self.scale, self.head = nn.Linear(4, 3), nn.Parameter(torch.zeros(3)), nn.Linear(3, 2)
        nn.init.zeros_(self.head.weight)

    def forward(self, x):
        hidden = torch.tanh(self.layer(x))
        return self.head(torch.tanh(x[:, :3]) + self.scale * (hidden - hidden.mean(0)))


class NormalisesGradients(nn.Module):
    def forward(self, x):
        x = x.clone()
        x.register_hook(lambda grad: grad / grad.norm())
        return x


def sorted_rows(x):
    return x[x[:, 0].argsort()]


def against_inputs(model, x):
    return (model(x) - x[:, :2]).square().sum(1)


def divided_by_batch_size(model, x):
    return squared_outputs(model, x) / len(x)


def divided_by_all_tokens(model, x):
    return squared_outputs(model, x) / (x > 0).sum()


def weighted_by_frequency(model, x):
    labels = (x[:, 0] > 0).long()
    return squared_outputs(model, x) / torch.nn.functional.one_hot(labels, 2).sum(0)[labels]


def ranked_losses(model, x):
    losses = squared_outputs(model, x)
    return losses * (losses.detach() >= losses.detach().median())


MIXING = {
    "input minus mean": (lambda: TwoLayers(before=lambda x: x - x.mean(0)), squared_outputs),
    "input over norm": (lambda: TwoLayers(before=lambda x: x / x.norm(dim=0)), squared_outputs),
    "input mixup": (lambda: TwoLayers(before=lambda x: 0.5 * (x + x.roll(1, 0))), squared_outputs),
    "minus mean": (lambda: TwoLayers(between=lambda x: x - x.mean(0)), squared_outputs),
    "minus detached mean": (lambda: TwoLayers(between=lambda x: x - x.detach().mean(0)), squared_outputs),
    "in training only": (lambda: TwoLayers(between=InTrainingOnly()), squared_outputs),
    "input in training only": (lambda: TwoLayers(before=InTrainingOnly()), squared_outputs),
    "softmax over the batch": (lambda: TwoLayers(between=lambda x: x.softmax(0)), squared_outputs),
    "cumulative sum": (lambda: TwoLayers(between=lambda x: x.cumsum(0)), squared_outputs),
    "sorted": (lambda: TwoLayers(between=sorted_rows), against_inputs),
    "sorted outputs": (lambda: TwoLayers(after=sorted_rows), against_inputs),
    "functional batch norm": (
        lambda: TwoLayers(between=lambda x: nn.functional.batch_norm(x, None, None, training=True)),
        squared_outputs,
    ),
    "attention over the batch": (lambda: TwoLayers(between=lambda x: (x @ x.t()).softmax(-1) @ x), squared_outputs),
    "gradient normalised": (lambda: TwoLayers(between=NormalisesGradients()), squared_outputs),
    "weight of the batch": (BatchDependentWeight, squared_outputs),
    "twice zero": (TwiceZero, squared_outputs),
    "loss over batch size": (lambda: TwoLayers(), divided_by_batch_size),
    "loss over all tokens": (lambda: TwoLayers(), divided_by_all_tokens),
    "loss by frequency": (lambda: TwoLayers(), weighted_by_frequency),
    "loss by rank": (lambda: TwoLayers(), ranked_losses),
}


def build(name, seed=3):
    torch.manual_seed(seed)
    make, loss_fn = MIXING[name]
    return make().double(), loss_fn, torch.randn(5, 4, dtype=torch.float64)


def largest_difference(one, two):
    return max(float((one.grads[name] - two.grads[name]).abs().max()) for name in one.grads)


@pytest.mark.parametrize("name", MIXING)
def test_pitfalls_12_and_25_bookkeeping_refuses_what_mixes_examples(name):
    for seed in range(6):
        model, loss_fn, x = build(name, seed)
        grad = clipped_grad(model, loss_fn, clipping=BOUND, engine="bookkeeping")
        with pytest.raises(UnsupportedError, match=r"^(first|second|layer|gate|head|scale).*(mixes|no layer rule)"):
            grad(x)


@pytest.mark.parametrize("name", [name for name in MIXING if name != "functional batch norm"])
def test_pitfalls_12_and_25_auto_runs_each_example_alone_instead(name):
    """vmap and the reference see batches of one, so an example's part is the same whatever its mates."""
    model, loss_fn, x = build(name)
    grad = clipped_grad(model, loss_fn, clipping=BOUND)
    try:
        everything = grad(x)
    except UnsupportedError as error:
        assert "engine='reference'" in str(error)  # noqa: PT017 - some of these have no batching rule
        grad = clipped_grad(model, loss_fn, clipping=BOUND, engine="reference")
        everything = grad(x)
    else:
        assert grad.engine == "functional"
        assert grad.engine_reason.startswith("functional, because book-keeping refused ")
    parts = [grad(x[i : i + 1]) for i in range(len(x))]
    for parameter, total in everything.grads.items():
        torch.testing.assert_close(sum(part.grads[parameter] for part in parts), total, rtol=1e-9, atol=1e-9)


def test_examples_in_the_order_of_tokens_are_refused_behind_a_head_of_zeros():
    torch.manual_seed(0)
    model, x = ZeroHead().double(), torch.randn(5, 3, 4, dtype=torch.float64)
    with pytest.raises(UnsupportedError, match=r"^mix.bias, mix.weight: .*mixes examples"):
        clipped_grad(model, squared_outputs, clipping=BOUND, engine="bookkeeping")(x)


def test_mixing_is_seen_although_the_first_examples_are_equal():
    model, loss_fn, x = build("input minus mean")
    batch = torch.cat([x[:1].expand(4, -1), x])
    with pytest.raises(UnsupportedError, match="mixes"):
        clipped_grad(model, loss_fn, clipping=BOUND, engine="bookkeeping")(batch)


@pytest.mark.parametrize("uninformative", ["one example", "equal examples", "not finite"])
def test_a_batch_that_shows_nothing_is_not_taken_for_proof(uninformative):
    """The probe is repeated until it had different, finite examples to look at."""
    model, loss_fn, x = build("minus detached mean")
    first = {
        "one example": x[:1],
        "equal examples": x[:1].expand(6, -1),
        "not finite": torch.full((4, 4), torch.nan, dtype=torch.float64),
    }[uninformative]
    grad = clipped_grad(model, loss_fn, clipping=BOUND, engine="bookkeeping")
    grad(first)
    with pytest.raises(UnsupportedError, match="mixes"):
        grad(x)


def test_the_probe_runs_again_in_every_mode():
    """A submodule that starts to mix when it is put in training mode is seen, though the model's own flag stays."""
    model, loss_fn, x = build("in training only")
    model.between.eval()
    grad = clipped_grad(model, loss_fn, clipping=BOUND, engine="bookkeeping")
    grad(x)
    model.between.train()
    with pytest.raises(UnsupportedError, match="mixes"):
        grad(x)


def test_the_probe_runs_again_for_other_flags_and_structures():
    def loss_fn(model, inputs, centred):
        x = inputs["x"]
        return squared_outputs(model, x - x.mean(0) if centred or "more" in inputs else x)

    model, _, x = build("minus mean")
    model.between = None
    grad = clipped_grad(model, loss_fn, clipping=BOUND, engine="bookkeeping")
    grad({"x": x}, False)
    for batch in (({"x": x}, True), ({"x": x, "more": x}, False)):
        with pytest.raises(UnsupportedError, match="mixes"):
            grad(*batch)


class Packed(nn.Module):
    """Runs a layer on the words alone, without the padding: which rows belong to whom depends on values."""

    def __init__(self, select):
        super().__init__()
        self.table, self.layer, self.select = nn.Embedding(9, 4), nn.Linear(4, 3), select

    def forward(self, ids):
        words = ids > 0
        packed = torch.tanh(self.layer(self.select(self.table(ids), words)))
        spread = torch.zeros(*ids.shape, 3, dtype=packed.dtype)
        return spread.masked_scatter(words[..., None].expand_as(spread), packed)


@pytest.mark.parametrize(
    "select",
    [
        lambda x, words: x[words],
        lambda x, words: x.masked_select(words[..., None]).view(-1, 4),
        lambda x, words: x.flatten(0, 1)[words.flatten().nonzero()[:, 0]],
        lambda x, words: x.flatten(0, 1)[torch.where(words.flatten())[0]],
        lambda x, words: x.flatten(0, 1).repeat_interleave(words.flatten().long(), dim=0),
    ],
    ids=["mask", "masked_select", "nonzero", "where", "repeat_interleave"],
)
def test_rows_selected_by_their_values_are_refused(select):
    """Two words each on the probe; later three and one, which have the same shape and other owners."""
    torch.manual_seed(0)
    model = Packed(select).double()
    ids = torch.tensor([[1, 2, 0, 0], [3, 4, 0, 0], [5, 6, 0, 0], [7, 0, 0, 0], [8, 7, 6, 0]])
    with pytest.raises(UnsupportedError, match=r"linear: runs on rows that .* selected by their values.*reference"):
        clipped_grad(model, squared_outputs, clipping=BOUND, engine="bookkeeping")(ids)


def test_shapes_that_depend_on_values_are_refused_when_they_change():
    class Cropped(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 3)

        def forward(self, x):
            length = int((x != 0).sum(1).max())
            return self.layer(x[:, :length].reshape(-1, 1)).view(len(x), -1)

    model = Cropped().double()
    grad = clipped_grad(model, squared_outputs, clipping=BOUND, engine="bookkeeping")
    x = torch.tensor([[1.0, 2, 0, 0], [3, 4, 0, 0], [5, 6, 0, 0]], dtype=torch.float64)
    grad(x)
    x[0, 2] = 7
    with pytest.raises(UnsupportedError, match=r"Shapes that depend on values have no rule; use engine='reference'"):
        grad(x)


class Centring(nn.Module):
    """Mixes examples only where an attribute says so."""

    def __init__(self):
        super().__init__()
        self.layer, self.centre = nn.Linear(4, 3), False

    def forward(self, x):
        return self.layer(x - x.mean(0) if self.centre else x)


def test_a_model_that_an_attribute_makes_mix_is_refused_then_too():
    grad = clipped_grad(Centring(), squared_outputs, clipping=BOUND, engine="bookkeeping")
    x = torch.randn(6, 4)
    grad(x)
    grad.model.centre = True
    with pytest.raises(UnsupportedError, match="depends on the others"):
        grad(x)
    grad.model.centre = False
    grad(x)


def test_a_schedule_in_a_models_numbers_does_not_pile_up_findings(monkeypatch):
    monkeypatch.setattr(engines, "_FORMS", 3)
    grad = clipped_grad(Centring(), squared_outputs, clipping=BOUND, engine="bookkeeping")
    for step in range(6):
        grad.model.temperature = float(step)
        grad(torch.randn(6, 4))
    assert len(grad._engine.eager._found) == 3


@pytest.mark.parametrize("name", ["accepted", "input minus mean", "minus mean"])
def test_the_probe_leaves_weights_modes_and_generators_as_they_were(name):
    torch.manual_seed(5)
    model, loss_fn, x = (
        (TwoLayers(between=nn.Dropout(0.5)).double(), squared_outputs, torch.randn(5, 4, dtype=torch.float64))
        if name == "accepted"
        else build(name)
    )
    model.second.eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    versions = [p._version for p in model.parameters()]
    modes = [module.training for module in model.modules()]
    generator = torch.get_rng_state()
    grad = clipped_grad(model, loss_fn, clipping=BOUND, engine="bookkeeping")
    try:
        grad._engine.eager.ways((x,), len(x))
        assert name == "accepted"
    except UnsupportedError:
        assert name != "accepted"
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert [p._version for p in model.parameters()] == versions
    assert [module.training for module in model.modules()] == modes
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), generator)


def test_a_model_that_goes_another_way_for_some_examples_is_followed_on_both():
    """An optimisation that skips work where no example needs it changes the operations and not the result."""

    class SkipsPadding(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.bias = nn.Linear(3, 3), nn.Parameter(torch.randn(3))

        def forward(self, x):
            padded = x[..., :1] == 0
            out = self.layer(x)
            return torch.where(padded, out, out + self.bias) if bool(padded.any()) else self.bias + out

    torch.manual_seed(0)
    model = SkipsPadding().double()
    x = torch.randn(6, 3, dtype=torch.float64)
    x[1, 0] = 0
    fast = clipped_grad(model, squared_outputs, clipping=BOUND, engine="bookkeeping")
    slow = clipped_grad(model, squared_outputs, clipping=BOUND, engine="reference")
    for batch in (x, x[2:], x[:1]):
        assert largest_difference(fast(batch), slow(batch)) < 1e-9


class BehindForeignGradients(nn.Module):
    """Inputs times a tensor that needs a gradient and is no parameter: no layer is where autograd's graph begins."""

    def __init__(self, between):
        super().__init__()
        self.layers, self.scale = TwoLayers(between=between), torch.ones(4, requires_grad=True)

    def forward(self, x):
        return self.layers(x * self.scale)


@pytest.mark.parametrize("model", [TwoLayers, BehindForeignGradients])
def test_activations_that_mix_are_seen_wherever_the_graph_begins(model):
    x = torch.randn(5, 4)
    mixing = model(between=lambda h: h - h.mean(0))
    with pytest.raises(UnsupportedError, match=r"first.*activations of another"):
        clipped_grad(mixing, squared_outputs, clipping=BOUND, engine="bookkeeping")(x)
    clipped_grad(model(between=torch.tanh), squared_outputs, clipping=BOUND, engine="bookkeeping")(x)


def test_the_probe_never_holds_the_gradients_of_all_layers_of_one_example(monkeypatch):
    """They are looked at as the backward pass comes by; kept, they would take more memory than a step."""
    asked, real = [], torch.autograd.grad

    def spy(outputs, inputs, *args, **kwargs):
        whole = isinstance(outputs, torch.Tensor)  # a default device has torch call it once more, with tuples
        if whole and outputs.dim() == 0 and kwargs.get("retain_graph") and not isinstance(inputs[0], torch.Tensor):
            asked.append(len(inputs))
        return real(outputs, inputs, *args, **kwargs)

    monkeypatch.setattr(torch.autograd, "grad", spy)
    model = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(4, 4), nn.Tanh())))
    clipped_grad(model, squared_outputs, clipping=BOUND, engine="bookkeeping")(torch.randn(5, 4))
    assert asked == [1, 1, 1]
