"""A batch in pieces has the sums and norms of the whole."""

import pytest
import torch
from torch import Tensor

from tacit.gradients.batches import Rows
from tacit.gradients.pieces import Pieces

gather = Rows.gather
SCARCE = torch.OutOfMemoryError("CUDA out of memory")


class Rowwise:
    """Sums rows under a mask; fails on more than so many at once."""

    name = "rowwise"

    def __init__(self, most: int, error: Exception = SCARCE) -> None:
        self.most, self.error, self.sizes = most, error, []

    def __call__(self, batch: tuple[Tensor, ...], mask: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        self.sizes.append(len(mask))
        if len(mask) > self.most:
            raise self.error
        rows = batch[0] * mask[:, None]
        return {"first": rows.sum(0), "second": rows.square().sum(0)}, batch[0].norm(dim=1, keepdim=True)


@pytest.mark.parametrize("most", [7, 4, 3, 1])
def test_pieces_add_up(most):
    values, mask = torch.arange(14.0).reshape(7, 2), torch.tensor([True] * 5 + [False, True])
    expected, norms = Rowwise(7)((values,), mask)
    sums, found = Pieces()(Rowwise(most), (values,), mask)
    torch.testing.assert_close(sums, expected)
    torch.testing.assert_close(found, norms)


@pytest.mark.parametrize("most", [7, 4, 3, 1])
def test_rows_are_gathered_piece_by_piece(most, monkeypatch):
    records, index = (torch.randn(20, 2),), torch.tensor([19, 3, 3, 0, 8, 1, 5])
    mask = torch.tensor([True] * 5 + [False, True])
    gathered = []
    monkeypatch.setattr(Rows, "gather", lambda rows: gathered.append(len(rows.index)) or gather(rows))
    found = Pieces()(Rowwise(7), Rows(records, index.numpy()), mask, most=most)
    torch.testing.assert_close(found, Rowwise(7)((records[0][index],), mask))
    assert max(gathered) == most
    assert sum(gathered) == 7


def test_a_size_that_fitted_is_kept():
    engine, pieces = Rowwise(2), Pieces()
    for _ in range(2):
        pieces(engine, (torch.ones(7, 2),), torch.ones(7, dtype=torch.bool))
    assert engine.sizes == [7, 4, 2, 2, 2, 1, 2, 2, 2, 1]


def test_no_more_than_asked_for_at_once():
    engine, pieces, batch, mask = Rowwise(7), Pieces(), (torch.ones(7, 2),), torch.ones(7, dtype=torch.bool)
    torch.testing.assert_close(pieces(engine, batch, mask, most=4), Rowwise(7)(batch, mask))
    assert engine.sizes == [4, 3]
    assert not pieces.needed  # memory was not short
    pieces(Rowwise(2), batch, mask, most=4)
    assert pieces.needed
    engine.sizes.clear()
    pieces(engine, batch, mask, most=1)
    assert engine.sizes == [1] * 7


def test_what_is_shared_by_all_examples_stays_whole():
    class Shifted(Rowwise):
        def __call__(self, batch, mask):
            return super().__call__((batch[0] + batch[1],), mask)

    batch, mask = (torch.randn(5, 2), torch.randn(1, 2)), torch.ones(5, dtype=torch.bool)
    torch.testing.assert_close(Pieces()(Shifted(2), batch, mask), Shifted(5)(batch, mask))


def test_memory_that_holds_no_example_is_really_out():
    engine = Rowwise(0)
    with pytest.raises(torch.OutOfMemoryError):
        Pieces()(engine, (torch.ones(3, 2),), torch.ones(3, dtype=torch.bool))
    assert engine.sizes == [3, 2, 1]


def test_other_errors_pass():
    engine = Rowwise(0, RuntimeError("expected scalar type Float but found Double"))
    with pytest.raises(RuntimeError, match="scalar type"):
        Pieces()(engine, (torch.ones(3, 2),), torch.ones(3, dtype=torch.bool))
    assert engine.sizes == [3]
