"""The network for tables: what its encoding is, and that private engines differentiate it as the reference does."""

import pytest
import torch

import tacit
from tacit.core.errors import InputError
from tacit.models import build, table_mlp
from tacit.models.tabular import TableEncoding

COLUMNS = (("number", 1), ("category", 5), ("boolean", 1), ("category", 2), ("number", 1))


def rows(count=12):
    generator = torch.Generator().manual_seed(0)
    numbers = torch.rand(count, 2, generator=generator, dtype=torch.float64)
    first = torch.eye(5, dtype=torch.float64)[torch.randint(5, (count,), generator=generator)]
    second = torch.eye(2, dtype=torch.float64)[torch.randint(2, (count,), generator=generator)]
    flag = torch.randint(2, (count, 1), generator=generator).double()
    return torch.cat([numbers[:, :1], first, flag, second, numbers[:, 1:]], dim=1)


def test_the_encoding_by_hand():
    encoding = TableEncoding(COLUMNS, bins=4).double()
    inputs = torch.tensor([[0.6, 0, 0, 1, 0, 0, 1, 1, 0, 1.0]], dtype=torch.float64)
    encoded = encoding(inputs)[0]
    assert encoding.width == len(encoded) == 4 + 3 + 1 + 1 + 4
    torch.testing.assert_close(encoded[:4], torch.tensor([1, 1, -0.2, -1], dtype=torch.float64))
    assert torch.equal(encoded[4:7], encoding.embeddings[0].weight[2])
    assert encoded[7] == 1
    assert torch.equal(encoded[8:9], encoding.embeddings[1].weight[0])
    assert encoded[9:].tolist() == [1, 1, 1, 1]


def test_a_linear_map_of_bins_is_any_piecewise_linear_function():
    x = torch.linspace(0, 1, 101, dtype=torch.float64)[:, None]
    knots = torch.tensor([0.3, -1.0, 2.0, 0.0, 0.5], dtype=torch.float64)
    place = (x[:, 0] * 4).clamp(max=4 - 1e-12)
    left = place.long()
    curve = knots[left] + (place - left) * (knots[left + 1] - knots[left])
    bins = torch.cat([TableEncoding([("number", 1)], bins=4)(x), torch.ones_like(x)], dim=1)
    fitted = bins @ torch.linalg.lstsq(bins, curve[:, None]).solution
    torch.testing.assert_close(fitted[:, 0], curve)


def test_embeddings_are_half_as_wide_as_the_category_and_at_most_eight():
    widths = [table.embedding_dim for table in TableEncoding([("category", n) for n in (2, 3, 15, 400)]).embeddings]
    assert widths == [1, 2, 8, 8]


@pytest.mark.parametrize("engine", ["functional", "bookkeeping"])
def test_engines_agree_with_the_reference(engine):
    torch.manual_seed(0)
    model = table_mlp(COLUMNS, 3).double()
    x, y = rows(), torch.arange(12) % 3

    def loss(net, inputs, targets):
        return torch.nn.functional.cross_entropy(net(inputs), targets, reduction="none")

    clipping = tacit.clipping.Flat(0.3)
    slow = tacit.clipped_grad(model, loss, clipping=clipping, engine="reference")(x, y)
    fast = tacit.clipped_grad(model, loss, clipping=clipping, engine=engine)(x, y)
    assert set(slow.grads) == set(dict(model.named_parameters()))
    for name, gradient in slow.grads.items():
        torch.testing.assert_close(fast.grads[name], gradient, rtol=1e-6, atol=1e-8)


def test_build_takes_the_columns_of_a_table():
    assert isinstance(build("table-mlp", (10,), 2, columns=COLUMNS)[1], TableEncoding)
    assert build("table-mlp", (10,), 2, columns=COLUMNS)[1].columns == COLUMNS
    assert build("table-mlp", (10,), 2)[1].columns == (("number", 1),) * 10
    assert build("linear", (10,), 2, columns=COLUMNS)[1].in_features == 10
    with pytest.raises(InputError, match=r"columns=\(\): must be at least one"):
        table_mlp((), 2)
    with pytest.raises(InputError, match="classes=0"):
        build("table-mlp", (10,), 0, columns=COLUMNS)
