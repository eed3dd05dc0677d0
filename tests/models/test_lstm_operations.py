"""The operations of an LSTM's walk over time, by themselves."""

import pytest
import torch

from tacit.models import lstm_sequence as lstm_sequence  # registers them


@pytest.mark.parametrize("biased", [True, False])
def test_operations_are_what_their_stand_ins_say(biased):
    """Shapes, strides and types of the stand-ins, nothing written to what was given, nothing shared with it."""
    torch.manual_seed(0)
    gates = torch.randn(3, 2, 8).transpose(0, 1)  # time and batch the other way round in memory
    weight, bias, state = torch.randn(8, 2), torch.randn(8) if biased else None, torch.randn(3, 2)
    utils = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.tacit.lstm_walk.default, (gates, weight, bias, state, state), test_utils=utils)
    _, cells, found = torch.ops.tacit.lstm_walk(gates, weight, bias, state, state)
    given = (torch.randn(2, 3, 2), state, state, cells, found, weight)
    torch.library.opcheck(torch.ops.tacit.lstm_walk_back.default, given, test_utils=utils)


def test_no_autocast_rounds_the_walk_back():
    torch.manual_seed(0)
    cells, gates, state = torch.randn(2, 3, 2), torch.rand(2, 3, 8), torch.randn(3, 2)
    given = (torch.randn(2, 3, 2), state, state, cells, gates, torch.randn(8, 2))
    expected = torch.ops.tacit.lstm_walk_back(*given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = torch.ops.tacit.lstm_walk_back(*given)
    assert [value.dtype for value in found] == [torch.float32] * 3
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
