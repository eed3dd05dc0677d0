"""Recurrent layers that show where their parameters enter, so that every example's gradient can be had.

torch's RNN, LSTM and GRU are single fused operations; no engine can look inside. Their twins here have the
same arguments, parameters, outputs and state_dict, and apply each parameter through plain ``F.linear``
calls: one for the inputs of all time steps, and for the hidden state one a time step, or in an LSTM one for all.
"""

import torch
from torch import nn

from tacit.core.errors import UnsupportedError
from tacit.core.validation import check_choice
from tacit.models.lstm_sequence import run_lstm
from tacit.models.recurrence import PrivateRecurrent, States
from tacit.models.surgery import with_replacements


class _SingleState(PrivateRecurrent[torch.Tensor]):
    """A twin whose state is the hidden state alone."""

    _states = 1

    def _to_tuple(self, state: torch.Tensor) -> States:
        return (state,)

    def _from_tuple(self, state: States) -> torch.Tensor:
        return state[0]


class PrivateRNN(_SingleState):
    """The twin of ``torch.nn.RNN``: h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or with ReLU in the place of
    tanh.
    """

    _gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_choice("nonlinearity", nonlinearity, ("tanh", "relu"))
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype)
        self.nonlinearity = nonlinearity

    def _cell(self, from_input: torch.Tensor, from_hidden: torch.Tensor, state: States) -> States:
        del state  # enters through from_hidden alone
        total = from_input + from_hidden
        return (torch.tanh(total) if self.nonlinearity == "tanh" else torch.relu(total),)


class PrivateGRU(_SingleState):
    """The twin of ``torch.nn.GRU``: reset gate r, update gate z, candidate n = tanh(W_in x + b_in + r (W_hn
    h + b_hn)), and h' = (1 - z) n + z h.
    """

    _gates = 3

    def _cell(self, from_input: torch.Tensor, from_hidden: torch.Tensor, state: States) -> States:
        reset_i, update_i, candidate_i = from_input.chunk(3, dim=-1)
        reset_h, update_h, candidate_h = from_hidden.chunk(3, dim=-1)
        update = torch.sigmoid(update_i + update_h)
        candidate = torch.tanh(candidate_i + torch.sigmoid(reset_i + reset_h) * candidate_h)
        return (candidate + update * (state[0] - candidate),)


class PrivateLSTM(PrivateRecurrent[tuple[torch.Tensor, torch.Tensor]]):
    """The twin of ``torch.nn.LSTM``: gates i, f, g, o of W_ih x + b_ih + W_hh h + b_hh; c' = f c + i g, h' =
    o tanh(c').

    ``proj_size`` other than 0 is refused.
    """

    _gates = 4
    _states = 2

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if proj_size != 0:
            raise UnsupportedError(
                f"proj_size={proj_size}: PrivateLSTM has no projections. Leave it 0, and put a Linear after the layer."
            )
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype)

    def _to_tuple(self, state: tuple[torch.Tensor, torch.Tensor]) -> States:
        return state

    def _from_tuple(self, state: States) -> tuple[torch.Tensor, torch.Tensor]:
        return state[0], state[1]

    def _cell(self, from_input: torch.Tensor, from_hidden: torch.Tensor, state: States) -> States:
        enter, forget, candidate, leave = (from_input + from_hidden).chunk(4, dim=-1)
        cell = torch.sigmoid(forget) * state[1] + torch.sigmoid(enter) * torch.tanh(candidate)
        return torch.sigmoid(leave) * torch.tanh(cell), cell

    def _walk(
        self, from_inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, state: States
    ) -> tuple[torch.Tensor, States]:
        """In a few operations, or cell by cell under a transform of ``torch.func``, which knows no rule for those."""
        if torch._C._functorch.peek_interpreter_stack() is not None:
            return super()._walk(from_inputs, weight, bias, state)
        outputs, cell = run_lstm(from_inputs, weight, bias, *state)
        return outputs, (outputs[-1], cell)


def replace_recurrent(model: nn.Module) -> nn.Module:
    """A copy of ``model`` with the private-friendly twin in the place of every ``nn.RNN``, ``nn.LSTM`` and
    ``nn.GRU``.

    Outputs, parameter names and weights stay the same; the given model is left as it is. A subclass or
    parametrised form of these layers is refused, since its own behaviour would be lost.
    """

    def replace(module: nn.Module, name: str) -> nn.Module | None:
        if not isinstance(module, nn.RNNBase):
            return None
        if type(module) not in (nn.RNN, nn.LSTM, nn.GRU):
            raise UnsupportedError(
                f"{name or 'model'} ({type(module).__name__}): only plain RNN, LSTM and GRU have a twin. "
                "Write the layer with PrivateRNN, PrivateLSTM or PrivateGRU."
            )
        return _twin(module)

    return with_replacements(model, replace)


def _twin(layer: nn.RNNBase) -> nn.Module:
    """The twin of one layer, holding the layer's very parameters, so that ties, device and dtype are kept."""
    twin: nn.Module
    inputs, hidden, layers = layer.input_size, layer.hidden_size, layer.num_layers
    rest = (bool(layer.bias), layer.batch_first, layer.dropout, layer.bidirectional)
    if isinstance(layer, nn.LSTM):
        twin = PrivateLSTM(inputs, hidden, layers, *rest, layer.proj_size, device="meta")
    elif isinstance(layer, nn.GRU):
        twin = PrivateGRU(inputs, hidden, layers, *rest, device="meta")
    else:
        twin = PrivateRNN(inputs, hidden, layers, str(layer.nonlinearity), *rest, device="meta")
    for name, parameter in layer.named_parameters(recurse=False):
        setattr(twin, name, parameter)
    return twin.train(layer.training)
