"""What the private-friendly recurrent layers share: torch's parameters, and the walk over layers and time."""

import math
from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import nn

from tacit.core.errors import InputError, UnsupportedError
from tacit.core.validation import check_count

State = TypeVar("State")
States = tuple[torch.Tensor, ...]


class PrivateRecurrent(nn.Module, ABC, Generic[State]):
    """What the three twins share: parameters under torch's names, and the walk over layers, directions and
    time.

    ``State`` is what a user passes and gets: the hidden state, or for an LSTM the pair of hidden and cell
    state. Inside, a state is always a tuple of tensors of shape (batch, hidden).
    """

    _gates: ClassVar[int]
    _states: ClassVar[int]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size = check_count("input_size", input_size)
        self.hidden_size = check_count("hidden_size", hidden_size)
        self.num_layers = check_count("num_layers", num_layers)
        if not 0 <= dropout <= 1:
            raise InputError(f"dropout={dropout!r}: must be a probability between 0 and 1.")
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = 0
        self._create_parameters(device, dtype)
        self.reset_parameters()

    def _suffixes(self, layer: int) -> tuple[str, ...]:
        return (f"_l{layer}", f"_l{layer}_reverse") if self.bidirectional else (f"_l{layer}",)

    def _create_parameters(self, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
        rows = self._gates * self.hidden_size
        for layer in range(self.num_layers):
            suffixes = self._suffixes(layer)
            inputs = self.input_size if layer == 0 else len(suffixes) * self.hidden_size
            shapes: dict[str, tuple[int, ...]] = {
                "weight_ih": (rows, inputs),
                "weight_hh": (rows, self.hidden_size),
            }
            if self.bias:
                shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
            for suffix in suffixes:
                for name, shape in shapes.items():
                    empty = torch.empty(shape, device=device, dtype=dtype)
                    self.register_parameter(f"{name}{suffix}", nn.Parameter(empty))

    def reset_parameters(self) -> None:
        """Uniform between -1/sqrt(hidden_size) and +1/sqrt(hidden_size), in torch's order: one seed, one
        start.
        """
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Does nothing: there is no fused kernel to prepare. Kept because models call it on torch's layers."""

    def extra_repr(self) -> str:
        return (
            f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}, bias={self.bias}, "
            f"batch_first={self.batch_first}, dropout={self.dropout}, bidirectional={self.bidirectional}"
        )

    @abstractmethod
    def _cell(self, from_input: torch.Tensor, from_hidden: torch.Tensor, state: States) -> States:
        """The next state from the two affine maps of input and hidden state; the hidden state comes first."""

    @abstractmethod
    def _to_tuple(self, state: State) -> States:
        """The user's form of a state as a tuple."""

    @abstractmethod
    def _from_tuple(self, state: States) -> State:
        """A tuple in the user's form of a state."""

    def forward(self, input: torch.Tensor, hx: State | None = None) -> tuple[torch.Tensor, State]:
        """The hidden states of the last layer at every time step, and the last state of every layer and
        direction.

        Shapes as torch has them: input (time, batch, features), or (batch, time, features) with
        ``batch_first``, or (time, features) for a single sequence; states (layers x directions, batch,
        hidden) always.
        """
        batched = self._check_input(input)
        sequence = input if batched else input.unsqueeze(0)
        if batched and not self.batch_first:
            sequence = sequence.transpose(0, 1)
        states = self._initial_states(sequence, hx, batched)
        outputs, last = self._run_layers(sequence, states)
        if not batched:
            return outputs.squeeze(0), self._from_tuple(tuple(part.squeeze(1) for part in last))
        return outputs if self.batch_first else outputs.transpose(0, 1), self._from_tuple(last)

    def _check_input(self, input: object) -> bool:
        """Whether the input is a batch; what is no sequence of the right width is refused."""
        if isinstance(input, nn.utils.rnn.PackedSequence):
            raise UnsupportedError(
                f"{type(self).__name__}: a PackedSequence interleaves the examples, so that none keeps a gradient of "
                "its own. Pass the padded tensor, and let the loss ignore what comes after each sequence's end."
            )
        if not isinstance(input, torch.Tensor) or input.dim() not in (2, 3):
            raise InputError(f"{type(self).__name__}: input must be a tensor with 2 or 3 dimensions.")
        if input.shape[-1] != self.input_size:
            raise InputError(f"{type(self).__name__}: input has {input.shape[-1]} features, not {self.input_size}.")
        if input.shape[1 if input.dim() == 3 and self.batch_first else 0] == 0:
            raise InputError(f"{type(self).__name__}: input has no time steps; it needs at least one.")
        return input.dim() == 3

    def _initial_states(self, sequence: torch.Tensor, hx: State | None, batched: bool) -> States:
        """One tensor of shape (layers x directions, batch, hidden) for each part of a state; zeros by
        default.
        """
        rows = self.num_layers * (2 if self.bidirectional else 1)
        expected = (rows, sequence.shape[0], self.hidden_size)
        if hx is None:
            return tuple(sequence.new_zeros(expected) for _ in range(self._states))
        parts = tuple(part if batched else part.unsqueeze(1) for part in self._to_tuple(hx))
        for part in parts:
            if tuple(part.shape) != expected:
                raise InputError(f"{type(self).__name__}: a state of shape {tuple(part.shape)} must have {expected}.")
        return parts

    def _run_layers(self, sequence: torch.Tensor, states: States) -> tuple[torch.Tensor, States]:
        last: list[States] = []
        for layer in range(self.num_layers):
            if layer > 0 and self.dropout > 0:
                sequence = F.dropout(sequence, self.dropout, self.training)
            outputs = []
            for suffix in self._suffixes(layer):
                begin = tuple(part[len(last)] for part in states)
                output, end = self._run_direction(sequence, begin, suffix)
                outputs.append(output)
                last.append(end)
            sequence = torch.cat(outputs, dim=-1) if len(outputs) > 1 else outputs[0]
        return sequence, tuple(torch.stack(parts) for parts in zip(*last, strict=True))

    def _run_direction(self, sequence: torch.Tensor, state: States, suffix: str) -> tuple[torch.Tensor, States]:
        bias_ih = getattr(self, f"bias_ih{suffix}") if self.bias else None
        bias_hh = getattr(self, f"bias_hh{suffix}") if self.bias else None
        weight_hh = getattr(self, f"weight_hh{suffix}")
        from_inputs = F.linear(sequence, getattr(self, f"weight_ih{suffix}"), bias_ih).transpose(0, 1)
        if not suffix.endswith("_reverse"):
            outputs, state = self._walk(from_inputs, weight_hh, bias_hh, state)
            return outputs.transpose(0, 1), state
        outputs, state = self._walk(from_inputs.flip(0), weight_hh, bias_hh, state)
        return outputs.flip(0).transpose(0, 1), state

    def _walk(
        self, from_inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, state: States
    ) -> tuple[torch.Tensor, States]:
        """The hidden states of all time steps, time first, and the last state; one cell after the other."""
        outputs = []
        for given in from_inputs:
            state = self._cell(given, F.linear(state[0], weight, bias), state)
            outputs.append(state[0])
        return torch.stack(outputs), state
