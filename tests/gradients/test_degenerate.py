"""Where clipping has nothing to do the clipped sum is the plain gradient, and with extreme numbers it is bounded."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_cases import CASES, squared_outputs
from torch import nn

from tacit.clipping import Automatic, Flat, PerLayer
from tacit.gradients import clipped_grad

ENGINES = ("reference", "functional", "bookkeeping")


def losses(model, x, y):
    return F.cross_entropy(model(x), y, reduction="none")


def length(grads):
    return sum(float(g.double().square().sum()) for g in grads.values()) ** 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("clipping", [Flat(1e9), PerLayer(1e9)], ids=repr)
def test_without_clipping_bookkeeping_is_plain_autograd_bit_for_bit(dtype, clipping):
    """Weights of linear layers: one matrix product on both sides, in the same order."""
    for seed in range(5):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 10)).to(dtype)
        x, y = torch.randn(33, 12, dtype=dtype), torch.randint(0, 10, (33,))
        out = clipped_grad(model, losses, clipping=clipping, engine="bookkeeping")(x, y)
        plain = torch.autograd.grad(losses(model, x, y).sum(), list(model.parameters()))
        for (name, _), expected in zip(model.named_parameters(), plain, strict=True):
            if name.endswith("weight"):
                assert torch.equal(out.grads[name], expected), name
            torch.testing.assert_close(out.grads[name], expected, rtol=1e-5, atol=1e-6)


def dyadic(*shape, seed):
    """Small multiples of 1/4: sums and products of a few of them are exact in float64, in any order."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-8, 9, shape, generator=generator).double() / 4


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("chunk_size", [None, 1, 3])
def test_without_clipping_every_engine_is_plain_autograd_bit_for_bit_on_exact_numbers(engine, chunk_size):
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)).double()
    with torch.no_grad():
        for seed, parameter in enumerate(model.parameters()):
            parameter.copy_(dyadic(*parameter.shape, seed=seed))
    x, y = dyadic(7, 5, seed=10), dyadic(7, 3, seed=11)

    def squares(model, x, y):
        return (model(x) - y).square().sum(1)

    out = clipped_grad(model, squares, clipping=Flat(1e12), engine=engine, chunk_size=chunk_size)(x, y)
    plain = torch.autograd.grad(squares(model, x, y).sum(), list(model.parameters()))
    for (name, _), expected in zip(model.named_parameters(), plain, strict=True):
        assert torch.equal(out.grads[name], expected), name


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", ["conv2d", "conv2d-groups", "layer-norm", "attention-self", "tied", "gru"])
def test_without_clipping_other_layers_are_plain_autograd_to_rounding(engine, case):
    torch.manual_seed(0)
    model, batch = CASES[case].build().double(), CASES[case].inputs()
    out = clipped_grad(model, squared_outputs, clipping=Flat(1e9), engine=engine)(*batch)
    plain = torch.autograd.grad(squared_outputs(model, *batch).sum(), list(model.parameters()))
    for (name, _), expected in zip(model.named_parameters(), plain, strict=True):
        torch.testing.assert_close(out.grads[name], expected, rtol=1e-10, atol=1e-12)


@settings(max_examples=40)
@given(
    st.floats(1e-6, 1e6), st.integers(0, 10**6), st.sampled_from(ENGINES), st.sampled_from(["flat", "layer", "auto"])
)
def test_one_example_never_contributes_more_than_the_bound(bound, seed, engine, kind):
    clipping = {"flat": Flat, "layer": PerLayer, "auto": Automatic}[kind](bound)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    scale = 10 ** float(torch.empty(1).uniform_(-6, 6))
    out = clipped_grad(model, squared_outputs, clipping=clipping, engine=engine)(
        torch.randn(1, 4, dtype=torch.float64) * scale
    )
    assert length(out.grads) <= bound * (1 + 1e-12)


def test_a_product_that_underflows_beside_a_huge_one_does_not_hide_a_norm():
    """Gradients of 1e-23 square to zero in float32, yet beside inputs of 1e18 they make a gradient of 1e-5."""
    layer = nn.Linear(64, 64, bias=False)
    grad = clipped_grad(layer, lambda m, x: m(x).sum(1) * 1e-23, clipping=Flat(1e-4), engine="bookkeeping")
    out = grad(torch.full((1, 64), 1e18))
    plain = clipped_grad(layer, lambda m, x: m(x).sum(1) * 1e-23, clipping=Flat(1e-4), engine="reference")
    assert float(plain(torch.full((1, 64), 1e18)).unsafe_norms) == pytest.approx(64e-5, rel=1e-3)
    assert float(out.unsafe_norms) >= 64e-5 * (1 - 1e-3)
    assert length(out.grads) <= 1e-4 * (1 + 1e-5)


@pytest.mark.parametrize("engine", ["reference", "bookkeeping"])
def test_pitfall_09_sparse_embeddings_add_up_their_duplicates(engine):
    torch.manual_seed(0)
    ids = torch.tensor([[1, 1, 1, 2], [3, 3, 0, 3]])
    dense, sparse = nn.Embedding(5, 3).double(), nn.Embedding(5, 3, sparse=True).double()
    sparse.load_state_dict(dense.state_dict())
    expected = clipped_grad(dense, squared_outputs, clipping=Flat(0.1), engine="reference")(ids)
    out = clipped_grad(sparse, squared_outputs, clipping=Flat(0.1), engine=engine)(ids)
    torch.testing.assert_close(out.unsafe_norms, expected.unsafe_norms, rtol=1e-12, atol=0)
    torch.testing.assert_close(out.grads["weight"], expected.grads["weight"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_chunks_of_any_size_give_one_sum(engine):
    torch.manual_seed(0)
    model, x = nn.Linear(4, 3).double(), torch.randn(11, 4, dtype=torch.float64)
    whole = clipped_grad(model, squared_outputs, clipping=Flat(0.5), engine=engine)(x)
    for size in (1, 2, 5, 11, 100):
        parts = clipped_grad(model, squared_outputs, clipping=Flat(0.5), engine=engine, chunk_size=size)(x)
        torch.testing.assert_close(parts.grads["weight"], whole.grads["weight"], rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(parts.unsafe_norms, whole.unsafe_norms, rtol=1e-12, atol=0)


def test_the_reference_norm_of_a_large_parameter_is_exact():
    """Squares are added up in float64."""
    model = nn.Linear(700, 400, bias=False)
    x = torch.randn(2, 700)
    found = clipped_grad(model, lambda m, v: m(v).sum(1), clipping=Flat(1.0), engine="reference")(x)
    expected = x.double().square().sum(1).mul(400).sqrt()
    torch.testing.assert_close(found.unsafe_norms[:, 0], expected, rtol=1e-6, atol=0.0)
