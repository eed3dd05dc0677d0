"""Every way to a norm gives the reference's norms and sums: on whole models, and alone on layers of any geometry."""

import dataclasses
import functools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from layer_cases import CASES, EXAMPLES, squared_outputs
from torch import Tensor, nn

from tacit.clipping import Flat
from tacit.gradients import ClippedSum, clipped_grad, ways
from tacit.gradients.contributions import Contribution, Convolved, Direct, Outer
from tacit.gradients.convolving import Geometry
from tacit.gradients.gram_norms import measure_several
from tacit.gradients.layers import Layout, convolution
from tacit.gradients.layers.linear import LINEAR
from tacit.gradients.parameter_gradients import ParameterGradients
from tacit.gradients.strategies import STRATEGIES, Strategies
from tacit.gradients.ways import Measured, Way, ways_for

# torch says once that uneven "same" padding copies the input.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")

BOUND = 0.7
MASK = torch.tensor([True, False, True, True, False])
BOOKKEEPING_CASES = [name for name, case in CASES.items() if "bookkeeping" in case.engines]


def prepared(name: str, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    model = CASES[name].build().double().to(dtype)
    return model, tuple(leaf.to(dtype) if leaf.is_floating_point() else leaf for leaf in CASES[name].inputs())


@functools.cache
def reference(name: str, masked: bool) -> ClippedSum:
    model, batch = prepared(name)
    mask = MASK if masked else None
    return clipped_grad(model, squared_outputs, clipping=Flat(BOUND), engine="reference")(*batch, mask=mask)


def check_equal(found: ClippedSum, expected: ClippedSum, tolerance: float = 1e-9) -> None:
    assert found.grads.keys() == expected.grads.keys()
    for name, grad in expected.grads.items():
        torch.testing.assert_close(found.grads[name].double(), grad, rtol=tolerance, atol=tolerance, msg=name)
    torch.testing.assert_close(found.unsafe_norms, expected.unsafe_norms, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", BOOKKEEPING_CASES)
def test_every_strategy_equals_the_reference_pitfalls_28_29_30_31(name):
    model, batch = prepared(name)
    for strategy in STRATEGIES:
        grad = clipped_grad(model, squared_outputs, clipping=Flat(BOUND), engine="bookkeeping", strategy=strategy)
        check_equal(grad(*batch), reference(name, False))
        grad.chunk_size = 2
        check_equal(grad(*batch, mask=MASK), reference(name, True))


@pytest.mark.parametrize("name", ["linear-3d", "conv1d", "conv2d-uneven", "conv2d-same", "conv3d", "tied", "lstm"])
def test_every_strategy_in_float32_is_off_by_rounding_alone(name):
    model, batch = prepared(name, torch.float32)
    for strategy in STRATEGIES:
        grad = clipped_grad(model, squared_outputs, clipping=Flat(BOUND), engine="bookkeeping", strategy=strategy)
        check_equal(grad(*batch), reference(name, False), tolerance=1e-3)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["linear-2d", "linear-3d", "conv2d", "frames-conv1d"])
def test_pitfall_05_an_example_that_is_not_finite_adds_zero_by_every_strategy(name, value, strategy):
    model, (batch,) = prepared(name)
    spoilt = batch.clone()
    spoilt[1].view(-1)[3] = value
    grad = clipped_grad(model, squared_outputs, clipping=Flat(BOUND), engine="bookkeeping", strategy=strategy)
    found, rest = grad(spoilt), grad(batch[[0, 2, 3, 4]])
    for key, expected in rest.grads.items():
        torch.testing.assert_close(found.grads[key], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_masked_examples_may_hold_anything(strategy):
    """Padding that is not finite, or far too large, changes no bit of the others' sum."""
    for name in ("linear-3d", "conv2d"):
        model, (batch,) = prepared(name)
        grad = clipped_grad(model, squared_outputs, clipping=Flat(BOUND), engine="bookkeeping", strategy=strategy)
        expected = grad(batch, mask=MASK)
        for padding in (torch.nan, torch.inf, 1e250):
            filled = torch.where(MASK.reshape(-1, *[1] * (batch.dim() - 1)), batch, padding)
            found = grad(filled, mask=MASK)
            check_equal(found, expected, tolerance=1e-12)


@pytest.mark.parametrize("strategy", [*STRATEGIES, None])
def test_pitfall_04_chunks_without_examples_are_zero(strategy):
    for name in ("linear-2d", "conv2d", "tied"):
        model, batch = prepared(name)
        grad = clipped_grad(model, squared_outputs, clipping=Flat(BOUND), engine="bookkeeping", strategy=strategy)
        empty = tuple(leaf[:0] for leaf in batch)
        assert all(bool((value == 0).all()) for value in grad(*empty).grads.values())
        for chunks in ([], [(empty, None)], [(empty, torch.zeros(0, dtype=torch.bool)), (empty, None)]):
            assert all(bool((value == 0).all()) for value in grad.accumulate(chunks).values())
        with_rest = grad.accumulate([(empty, None), (batch, None), (empty, None)])
        check_equal(ClippedSum(with_rest, grad(*batch).unsafe_norms), reference(name, False))
        none_counts = grad(*batch, mask=torch.zeros(EXAMPLES, dtype=torch.bool))
        assert all(bool((value == 0).all()) for value in none_counts.grads.values())


# Ways alone, on contributions of any shape.


def check_way(use: Contribution, way: Way, true: Tensor, tolerance: float = 1e-9) -> None:
    """Norms and a weighted sum against gradients that were written out in float64: ``[examples, *shape]``."""
    measured = way.measure(use)
    norms = true.flatten(1).norm(dim=1)
    assert measured.squared.dtype == torch.float64
    torch.testing.assert_close(measured.squared.sqrt(), norms, rtol=tolerance, atol=tolerance)
    weights = torch.linspace(0.1, 1.0, len(true), dtype=torch.float64)
    found = measured.source.weighted_sum(weights)
    expected = torch.tensordot(weights, true, dims=1)
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance * (1 + float(norms.sum())))


def random_outer(examples: int, groups: int, tokens: int, rows: int, columns: int) -> Outer:
    left = torch.randn(examples, groups, tokens, rows, dtype=torch.float64)
    right = torch.randn(examples, groups, tokens, columns, dtype=torch.float64)
    return Outer(left, right, torch.Size((groups * rows, columns)))


sizes = st.integers(1, 6)


@hypothesis_settings(max_examples=40)
@given(st.integers(1, 4), st.integers(1, 3), sizes, sizes, sizes, st.integers(0, 2**20))
def test_outer_products_by_every_way(examples, groups, tokens, rows, columns, seed):
    torch.manual_seed(seed)
    use = random_outer(examples, groups, tokens, rows, columns)
    true = torch.einsum("egtm,egtn->egmn", use.left, use.right).reshape(examples, *use.shape)
    for name, way in {**ways.OUTER_WAYS, **ways_for(use)}.items():
        check_way(use, way, true)
        single = Outer(use.left.float(), use.right.float(), use.shape)
        check_way(single, way, true, tolerance=1e-3)
        assert name in ("keep", "gram", "tile", "product")


@hypothesis_settings(max_examples=40)
@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 5), sizes, st.integers(0, 2**20))
def test_embeddings_by_every_way_whatever_tokens_repeat(examples, tokens, vocabulary, columns, seed):
    """Far fewer words than tokens, so that nearly all repeat; padding is a token whose gradient is zero."""
    torch.manual_seed(seed)
    ids = torch.randint(0, vocabulary, (examples, 1, tokens))
    right = torch.randn(examples, 1, tokens, columns, dtype=torch.float64)
    right = torch.where((ids == 0)[..., None], torch.zeros((), dtype=torch.float64), right)
    use = Outer(ids, right, torch.Size((vocabulary, columns)))
    one_hot = F.one_hot(ids, vocabulary).double()
    true = torch.einsum("egtm,egtn->emn", one_hot, right)
    for way in ways_for(use).values():
        check_way(use, way, true)
    check_way(use, Way(lambda one: Measured(measure_several([one]), one), ways._gram_cost), true)


@st.composite
def convolutions(draw) -> Convolved:
    rank, examples, fold, groups = draw(
        st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(1, 2))
    )
    stride, padding, dilation, kernel = (
        tuple(draw(st.integers(low, high)) for _ in range(rank)) for low, high in ((1, 3), (0, 2), (1, 2), (1, 3))
    )
    size = [
        max(1, d * (k - 1) + 1 - 2 * p) + draw(st.integers(0, 4))
        for k, d, p in zip(kernel, dilation, padding, strict=True)
    ]
    channels, outputs = (draw(st.integers(1, 3)) for _ in range(2))
    torch.manual_seed(draw(st.integers(0, 2**20)))
    geometry = Geometry(stride, padding, dilation, groups)
    shape = torch.Size((groups * outputs, channels, *kernel))
    values = torch.randn(examples * fold, groups * channels, *size, dtype=torch.float64)
    out = _convolve(values, torch.zeros(shape, dtype=torch.float64), geometry)
    return Convolved(values, torch.randn_like(out), shape, geometry, examples)


def _convolve(values: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    function = (F.conv1d, F.conv2d, F.conv3d)[len(geometry.stride) - 1]
    return function(values, weight, None, geometry.stride, geometry.padding, geometry.dilation, geometry.groups)


def written_by_autograd(use: Convolved) -> Tensor:
    """One example at a time by torch's own convolution and its backward pass."""
    rows = []
    for i in range(use.examples):
        place = slice(i * use.fold, (i + 1) * use.fold)
        weight = torch.zeros(use.shape, dtype=torch.float64, requires_grad=True)
        out = _convolve(use.input[place].double(), weight, use.geometry)
        rows.append(torch.autograd.grad(out, weight, use.grad[place].double())[0])
    return torch.stack(rows)


@hypothesis_settings(max_examples=60)
@given(convolutions())
def test_convolutions_by_every_way(use):
    true = written_by_autograd(use)
    for way in ways_for(use).values():
        check_way(use, way, true)
    torch.testing.assert_close(use.write_out(), true)
    single = dataclasses.replace(use, input=use.input.float(), grad=use.grad.float())
    for way in ways_for(single).values():
        check_way(single, way, true, tolerance=1e-3)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_images_in_any_memory_format(memory_format):
    torch.manual_seed(0)
    x = torch.randn(3, 4, 6, 5, dtype=torch.float64).contiguous(memory_format=memory_format)
    grad = torch.randn(3, 2, 4, 3, dtype=torch.float64).contiguous(memory_format=memory_format)
    use = Convolved(x, grad, torch.Size((2, 4, 3, 3)), Geometry((1, 1), (0, 0), (1, 1), 1), 3)
    for way in ways_for(use).values():
        check_way(use, way, written_by_autograd(use))


@pytest.mark.parametrize(("examples", "entries"), [(7, 3), (0, 3), (3, 0), (23, 5), (1, 64)])
def test_written_rows_are_measured_a_few_at_a_time(monkeypatch, examples, entries):
    """Torch copies what it is given into float64, twice the memory of all that is kept."""
    monkeypatch.setattr(ways, "_AT_ONCE", 16)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    given, norm = [], torch.linalg.vector_norm

    def spied(rows: Tensor, **options) -> Tensor:
        given.append(rows.numel())
        return norm(rows, **options)

    monkeypatch.setattr(torch.linalg, "vector_norm", spied)
    rows = torch.randn(examples, entries)
    rows[:1] *= 1e30  # whose square float32 cannot hold
    measured = ways.measure_written(Direct(rows))
    assert torch.allclose(measured.squared, rows.double().square().sum(1), rtol=1e-12)
    assert measured.source.grads is rows
    assert max(given) <= max(16, 2 * entries)


def test_tied_uses_have_their_cross_terms():
    """A one-hot use and a dense one of the same table; without the cross term the norm is another."""
    torch.manual_seed(0)
    ids, right = torch.randint(0, 4, (3, 1, 5)), torch.randn(3, 1, 5, 2, dtype=torch.float64)
    embedding = Outer(ids, right, torch.Size((4, 2)))
    head = Outer(*(torch.randn(3, 1, 6, n, dtype=torch.float64) for n in (4, 2)), torch.Size((4, 2)))
    true = (embedding.write_out() + head.write_out()).flatten(1).norm(dim=1)
    both = ParameterGradients.of([embedding, head])
    for order in ([embedding, head], [head, embedding]):
        torch.testing.assert_close(measure_several(order).sqrt(), true, rtol=1e-9, atol=0)
    squared, source = both.measured(Strategies())
    torch.testing.assert_close(squared.sqrt(), true, rtol=1e-9, atol=0)
    total = source.weighted_sum(torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(total, (embedding.write_out() + head.write_out()).sum(0))
    without = (measure_several([embedding]) + measure_several([head])).sqrt()
    assert float((without / true - 1).abs().max()) > 0.01


def _tokens_apart(use: Outer) -> Measured:
    """Wrong: the squares of the tokens' norms, without their cross terms."""
    lengths = use.left.norm(dim=3) * use.right.norm(dim=3)
    return Measured(lengths.square().sum((1, 2)).double(), use)


def _transposed(use: Outer) -> Measured:
    """Wrong: the right norm with the sum of another layout."""
    return Measured(ways.OUTER_WAYS["gram"].measure(use).squared, Outer(use.right, use.left, use.shape))


def _second_rounding(use: Outer) -> Measured:
    """Wrong: the norm of something else than what is added."""
    return ways.OUTER_WAYS["gram"].measure(Outer(use.left, use.right * (1 + 1e-6), use.shape))


@pytest.mark.parametrize("measure", [_tokens_apart, _transposed, _second_rounding])
def test_planted_wrong_ways_are_rejected(measure):
    torch.manual_seed(0)
    use = random_outer(3, 1, 4, 5, 5)
    true = torch.einsum("egtm,egtn->emn", use.left, use.right)
    check_way(use, ways.OUTER_WAYS["gram"], true)
    with pytest.raises(AssertionError):
        check_way(use, Way(measure, ways._gram_cost), true)


def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half precision stays what it is, where a CPU would multiply in float32."""
    monkeypatch.setattr(
        convolution, "product_dtype", lambda values, grad: torch.promote_types(values.dtype, grad.dtype)
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_forced_way_is_the_one_that_runs(strategy, monkeypatch):
    """Otherwise all of the above would compare one way with itself."""
    called = []

    def watch(table: dict[str, Way], kind: str) -> None:
        for name, way in table.items():

            def measure(use, way=way, name=name):
                called.append((kind, name))
                return way.measure(use)

            monkeypatch.setitem(table, name, dataclasses.replace(way, measure=measure))

    as_on_a_gpu(monkeypatch)
    image, ids = torch.randn(2, 4, 6, 6), torch.randint(0, 7, (2, 5))
    kinds = {
        "image": (ways.IMAGE_WAYS, nn.Conv2d(4, 2, 3, bias=False), image),
        "few positions": (ways.FEW_POSITIONS_WAYS, nn.Conv2d(4, 2, 3, bias=False).bfloat16(), image.bfloat16()),
        "groups": (ways.ANY_CONVOLUTION_WAYS, nn.Conv2d(4, 2, 3, groups=2, bias=False), image),
        "linear": (ways.OUTER_WAYS, nn.Linear(6, 4, bias=False), image[:, 0]),
        "one token": (ways.ONE_TOKEN_WAYS, nn.Linear(6, 4, bias=False), image[:, 0, 0]),
        "embedding": (ways.ONE_HOT_WAYS, nn.Embedding(7, 3), ids),
    }
    for kind, (table, _, _) in kinds.items():
        watch(table, kind)
    having = {kind: parts for kind, parts in kinds.items() if strategy in parts[0]}
    assert having
    for kind, (_, model, x) in having.items():
        called.clear()  # a convolution with groups asks a linear layer's ways in turn
        clipped_grad(model, squared_outputs, clipping=Flat(1.0), engine="bookkeeping", strategy=strategy)(x)
        assert {name for seen, name in called if seen == kind} == {strategy}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_half_precision_are_kept_as_they_are_and_added_up_in_float32(dtype):
    """The bias of a layer on one token is the gradient of its output; two uses of it are more than half precision."""
    grads = torch.tensor([[1.0], [256.0]], dtype=dtype)
    one = ParameterGradients.of([Direct(grads)])
    squared, source = one.measured(Strategies())
    assert source.uses[0].grads.dtype == dtype
    assert squared.tolist() == [1.0, 65_536.0]
    assert source.weighted_sum(torch.tensor([1.0, 1.0], dtype=torch.float64)).tolist() == [257.0]
    small = torch.tensor([[2.0**-10], [2.0**-8]], dtype=dtype)
    both = ParameterGradients.of([Direct(grads), Direct(small)])
    assert both.written_out().flatten().tolist() == [1 + 2.0**-10, 256 + 2.0**-8]


def test_a_bias_on_one_token_is_no_copy():
    layer, x = nn.Linear(3, 2), torch.randn(4, 3)
    call = LINEAR.sort(x, layer.weight, layer.bias)
    grad = torch.randn(4, 2).bfloat16()
    bias = LINEAR.contribute(call, grad, Layout(0, 1, 4))["bias"]()
    assert isinstance(bias, Direct)
    assert bias.grads.dtype == torch.bfloat16
    assert bias.grads.data_ptr() == grad.data_ptr()


def test_a_bias_on_several_tokens_is_their_sum_in_float32():
    layer, x = nn.Linear(3, 1), torch.randn(1, 2, 3)
    grad = torch.tensor([[[256.0], [1.0]]], dtype=torch.bfloat16)  # 257 has nine bits, one more than bfloat16
    bias = LINEAR.contribute(LINEAR.sort(x, layer.weight, layer.bias), grad, Layout(0, 1, 1))["bias"]()
    assert bias.write_out().tolist() == [[257.0]]
