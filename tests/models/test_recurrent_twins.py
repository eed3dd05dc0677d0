"""The private-friendly twins are torch's recurrent layers: same names, same numbers, same refusals."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.core.errors import InputError, UnsupportedError
from tacit.models import PrivateGRU, PrivateLSTM, PrivateRNN, replace_recurrent

TWINS = {nn.RNN: PrivateRNN, nn.LSTM: PrivateLSTM, nn.GRU: PrivateGRU}
PAIRS = list(TWINS.items())


def make_pair(theirs, ours, **options):
    torch.manual_seed(0)
    layer = theirs(4, 5, dtype=torch.float64, **options)
    twin = ours(4, 5, dtype=torch.float64, **options)
    twin.load_state_dict(layer.state_dict())
    return layer, twin


def as_tuple(state):
    return state if isinstance(state, tuple) else (state,)


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
@pytest.mark.parametrize(
    ("layers", "bidirectional", "bias", "batch_first"),
    list(itertools.product((1, 2), (False, True), (False, True), (False, True))),
)
@pytest.mark.parametrize("with_state", [False, True])
def test_twin_equals_torch(theirs, ours, layers, bidirectional, bias, batch_first, with_state):
    layer, twin = make_pair(
        theirs, ours, num_layers=layers, bidirectional=bidirectional, bias=bias, batch_first=batch_first
    )
    shape = (3, 6, 4) if batch_first else (6, 3, 4)
    x = torch.randn(shape, dtype=torch.float64)
    state = None
    if with_state:
        parts = tuple(
            torch.randn(layers * (1 + bidirectional), 3, 5, dtype=torch.float64)
            for _ in range(2 if theirs is nn.LSTM else 1)
        )
        state = parts if theirs is nn.LSTM else parts[0]
    expected, expected_state = layer(x, state)
    found, found_state = twin(x, state)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    for a, b in zip(as_tuple(found_state), as_tuple(expected_state), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
def test_gradients_equal_torchs(theirs, ours):
    layer, twin = make_pair(theirs, ours, num_layers=2, bidirectional=True, batch_first=True)
    x = torch.randn(3, 6, 4, dtype=torch.float64)
    for module in (layer, twin):
        module(x)[0].square().sum().backward()
    for (name, a), (_, b) in zip(twin.named_parameters(), layer.named_parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-10, atol=1e-12, msg=name)


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
@pytest.mark.parametrize("length", [1, 5])
def test_gradients_reach_first_states_and_come_from_last_ones(theirs, ours, length):
    layer, twin = make_pair(theirs, ours, num_layers=2, batch_first=True)
    x = torch.randn(3, length, 4, dtype=torch.float64, requires_grad=True)
    parts = 2 if ours is PrivateLSTM else 1
    first = [torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True) for _ in range(parts)]
    found = []
    for module in (layer, twin):
        last = as_tuple(module(x, tuple(first) if parts > 1 else first[0])[1])
        found.append(torch.autograd.grad(last[-1].square().sum(), [x, *first, *module.parameters()]))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_lstm_refuses_second_derivatives():
    """What its backward pass computes would count as a constant."""
    twin = PrivateLSTM(4, 5, batch_first=True)
    x = torch.randn(2, 3, 4, requires_grad=True)
    with pytest.raises(UnsupportedError, match="PrivateLSTM: has no second derivatives"):
        torch.autograd.grad(twin(x)[0].sum(), x, create_graph=True)


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
def test_one_sequence_without_a_batch(theirs, ours):
    layer, twin = make_pair(theirs, ours)
    x = torch.randn(6, 4, dtype=torch.float64)
    state = torch.randn(1, 5, dtype=torch.float64)
    state = (state, state) if theirs is nn.LSTM else state
    for given in (None, state):
        expected, expected_state = layer(x, given)
        found, found_state = twin(x, given)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        for a, b in zip(as_tuple(found_state), as_tuple(expected_state), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_relu_nonlinearity():
    layer, twin = make_pair(nn.RNN, PrivateRNN, nonlinearity="relu")
    x = torch.randn(6, 3, 4, dtype=torch.float64)
    torch.testing.assert_close(twin(x)[0], layer(x)[0], rtol=0, atol=1e-12)
    with pytest.raises(InputError, match="nonlinearity='sine'"):
        PrivateRNN(4, 5, nonlinearity="sine")


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
def test_positional_arguments_and_initialisation_are_torchs(theirs, ours):
    torch.manual_seed(7)
    layer = theirs(4, 5, 2)
    torch.manual_seed(7)
    twin = ours(4, 5, 2)
    for (name, a), (other, b) in zip(twin.named_parameters(), layer.named_parameters(), strict=True):
        assert name == other
        assert torch.equal(a, b)


def test_dropout_acts_between_layers_and_only_in_training():
    twin = PrivateLSTM(4, 5, num_layers=2, dropout=0.5, batch_first=True)
    x = torch.randn(2, 3, 4)
    twin.eval()
    assert torch.equal(twin(x)[0], twin(x)[0])
    twin.train()
    assert not torch.equal(twin(x)[0], twin(x)[0])
    single = PrivateLSTM(4, 5, dropout=0.5, batch_first=True).train()
    assert torch.equal(single(x)[0], single(x)[0])


def test_every_parameter_enters_through_f_linear(monkeypatch):
    """Engines see a parameter where F.linear gets it, the very object: no slice, chunk or transpose of it."""
    twin = PrivateLSTM(4, 5, num_layers=2, bidirectional=True, batch_first=True)
    seen, plain = [], F.linear

    def spy(x, weight, bias=None):
        seen.extend((weight, bias))
        return plain(x, weight, bias)

    monkeypatch.setattr(F, "linear", spy)
    twin(torch.randn(2, 3, 4))
    assert {id(p) for p in twin.parameters()} == {id(tensor) for tensor in seen}
    assert len(seen) == 2 * 2 * 2 * 2  # layers, directions, weight and bias; once for inputs and once for hidden states


@pytest.mark.parametrize("ours", TWINS.values())
def test_functional_gradients_of_single_examples(ours):
    twin = ours(4, 5, batch_first=True, dtype=torch.float64)
    parameters = {name: p.detach() for name, p in twin.named_parameters()}
    x = torch.randn(3, 6, 4, dtype=torch.float64)

    def loss(parameters, one):
        return torch.func.functional_call(twin, parameters, (one.unsqueeze(0),))[0].square().sum()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    for i in range(3):
        alone = torch.func.grad(loss)(parameters, x[i])
        for name, gradient in alone.items():
            torch.testing.assert_close(each[name][i], gradient, rtol=1e-10, atol=1e-12)


def test_lstm_is_a_few_operations_however_long_the_sequence():
    """A compiler takes minutes over thousands of them, and one walk over time is hundreds a layer."""

    def operations(length):
        twin = PrivateLSTM(4, 5, batch_first=True)
        graph = make_fx(lambda x: torch.autograd.grad(twin(x)[0].sum(), list(twin.parameters())))(
            torch.zeros(2, length, 4)
        )
        return len(graph.graph.nodes)

    assert operations(3) == operations(30)


def test_lstm_in_half_precision_is_close_to_torchs():
    torch.manual_seed(0)
    theirs = nn.LSTM(4, 5, num_layers=2, batch_first=True)
    ours = PrivateLSTM(4, 5, num_layers=2, batch_first=True)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(3, 8, 4)
    exact = torch.autograd.grad(theirs(x)[0].sum(), list(theirs.parameters()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = ours(x)[0]
    rough = torch.autograd.grad(outputs.float().sum(), list(ours.parameters()))
    assert outputs.dtype == torch.bfloat16
    for one, other in zip(exact, rough, strict=True):
        assert one.dtype == other.dtype == torch.float32
        assert (one - other).norm() < 0.03 * one.norm()


def test_empty_batch_is_ordinary():
    output, (hidden, cell) = PrivateLSTM(4, 5, batch_first=True)(torch.zeros(0, 3, 4))
    assert output.shape == (0, 3, 5)
    assert hidden.shape == cell.shape == (1, 0, 5)


def test_refusals_name_the_reason():
    with pytest.raises(UnsupportedError, match="proj_size=2"):
        PrivateLSTM(4, 5, proj_size=2)
    twin = PrivateGRU(4, 5, batch_first=True)
    packed = nn.utils.rnn.pack_padded_sequence(torch.zeros(2, 3, 4), torch.tensor([3, 2]), batch_first=True)
    with pytest.raises(UnsupportedError, match="PackedSequence interleaves"):
        twin(packed)
    with pytest.raises(InputError, match="7 features, not 4"):
        twin(torch.zeros(2, 3, 7))
    with pytest.raises(InputError, match="no time steps"):
        twin(torch.zeros(2, 0, 4))
    with pytest.raises(InputError, match="2 or 3 dimensions"):
        twin(torch.zeros(4))
    with pytest.raises(InputError, match=r"shape \(1, 9, 5\)"):
        twin(torch.zeros(2, 3, 4), torch.zeros(1, 9, 5))
    with pytest.raises(InputError, match="dropout=2"):
        PrivateGRU(4, 5, dropout=2)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.lstm = nn.LSTM(4, 5, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.gru = nn.GRU(10, 3, batch_first=True, bias=False)
        self.rnn = nn.RNN(3, 3, batch_first=True, nonlinearity="relu")

    def forward(self, tokens):
        self.lstm.flatten_parameters()
        return self.rnn(self.gru(self.lstm(self.embedding(tokens))[0])[0])[0]


def test_replace_recurrent_keeps_outputs_and_leaves_the_original():
    torch.manual_seed(1)
    model = Tagger().double().eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    replaced = replace_recurrent(model)
    assert type(replaced.lstm) is PrivateLSTM
    assert type(replaced.gru) is PrivateGRU
    assert type(replaced.rnn) is PrivateRNN
    assert not replaced.lstm.training
    assert type(model.lstm) is nn.LSTM
    tokens = torch.randint(10, (3, 6))
    torch.testing.assert_close(replaced(tokens), model(tokens), rtol=0, atol=1e-12)
    assert list(replaced.state_dict()) == list(before)
    with torch.no_grad():
        for parameter in replaced.parameters():
            parameter.zero_()
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_replace_recurrent_on_a_bare_layer_and_on_what_has_no_twin():
    assert type(replace_recurrent(nn.GRU(4, 5))) is PrivateGRU

    class Peephole(nn.LSTM):
        pass

    with pytest.raises(UnsupportedError, match=r"0 \(Peephole\)"):
        replace_recurrent(nn.Sequential(Peephole(4, 5)))


def test_replace_recurrent_keeps_frozen_and_tied_parameters():
    model = nn.ModuleDict({"a": nn.GRU(4, 5), "b": nn.GRU(4, 5)})
    model["b"].weight_hh_l0 = model["a"].weight_hh_l0
    model["a"].bias_ih_l0.requires_grad_(False)
    replaced = replace_recurrent(model)
    assert replaced["a"].weight_hh_l0 is replaced["b"].weight_hh_l0
    assert not replaced["a"].bias_ih_l0.requires_grad
