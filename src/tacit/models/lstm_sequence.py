r"""The time steps of an LSTM layer as operations of their own, so that a graph holds a few of them and not thousands.

With the gates :math:`a_t = x_t + W h_{t-1} + b` of all time steps, where :math:`x_t` comes from the inputs,

.. math:: c_t = \sigma(a^f_t)\, c_{t-1} + \sigma(a^i_t) \tanh(a^g_t), \qquad h_t = \sigma(a^o_t) \tanh(c_t).

A layer written out step by step is thousands of operations, over which a compiler takes minutes. Here the walk over
time is made within an operation, forwards for the states and backwards for the gradient of the gates. Between the two,
W meets all hidden states of the walk in one ``F.linear``, which is where its gradient comes from:
:math:`\partial L / \partial W = \sum_t (\partial L / \partial a_t)\, h_{t-1}^T`. So whoever asks for every example's
gradient finds an ordinary affine map on a sequence.

Tensors have time first here: (time, batch, ...). Everything is computed in the precision of the gates. There are no
second derivatives: whoever asks for a graph of the backward pass is refused.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tacit.core.errors import UnsupportedError


def run_lstm(
    from_inputs: Tensor, weight: Tensor, bias: Tensor | None, hidden: Tensor, cell: Tensor
) -> tuple[Tensor, Tensor]:
    """The hidden states of all time steps, (time, batch, hidden), and the last cell state, (batch, hidden).

    Args:
        from_inputs: what the gates i, f, g, o get from the inputs, (time, batch, 4 hidden).
        weight, bias: W and b.
        hidden, cell: the state before the first time step; gradients reach it.
    """
    hidden, cell = hidden.to(from_inputs.dtype), cell.to(from_inputs.dtype)
    with torch.no_grad():
        alike = weight.detach().to(from_inputs.dtype)
        shift = None if bias is None else bias.detach().to(from_inputs.dtype)
        states, cells, gates = _walk(from_inputs.detach(), alike, shift, hidden.detach(), cell.detach())
    if not torch.is_grad_enabled():
        return states, cells[-1]
    previous = torch.cat([hidden.detach()[None], states[:-1]])
    # Batch first, where whoever looks for examples finds them, several sequences an example included.
    total = from_inputs + F.linear(previous.transpose(0, 1), weight, bias).transpose(0, 1)
    outputs, last = _with_gradient(total, hidden, cell, states, cells, gates, alike)
    return outputs, last


@torch.library.custom_op("tacit::lstm_walk", mutates_args=())
def _walk(
    from_inputs: Tensor, weight: Tensor, bias: Tensor | None, hidden: Tensor, cell: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The hidden states, the cell states and the gates after their non-linearities, of all time steps.

    All is written where it stays: at these sizes a second copy would be what a step's memory is measured by.
    """
    width, across = hidden.shape[-1], weight.t().contiguous()
    gates = from_inputs.new_empty(from_inputs.shape)
    torch.add(from_inputs, 0 if bias is None else bias, out=gates)
    states = gates.new_empty((*gates.shape[:2], width))
    cells = torch.empty_like(states)
    for gate, next_hidden, next_cell in zip(gates.unbind(), states.unbind(), cells.unbind(), strict=True):
        gate.addmm_(hidden, across)
        enter_and_forget, candidate, leave = torch.split(gate, [2 * width, width, width], dim=1)
        enter, forget = enter_and_forget.sigmoid_().chunk(2, dim=1)
        torch.mul(enter, candidate.tanh_(), out=next_cell).addcmul_(forget, cell)
        torch.mul(leave.sigmoid_(), next_cell.tanh(), out=next_hidden)
        hidden, cell = next_hidden, next_cell
    return states, cells, gates


@_walk.register_fake
def _(
    from_inputs: Tensor, weight: Tensor, bias: Tensor | None, hidden: Tensor, cell: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    del weight, bias, cell
    shape = (*from_inputs.shape[:2], hidden.shape[-1])
    return from_inputs.new_empty(shape), from_inputs.new_empty(shape), from_inputs.new_empty(from_inputs.shape)


@torch.library.custom_op("tacit::lstm_with_gradient", mutates_args=())
def _with_gradient(
    total: Tensor, hidden: Tensor, cell: Tensor, states: Tensor, cells: Tensor, gates: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    """The states that the walk found, as a function of the gates before non-linearities and of the first state."""
    del total, hidden, cell, gates, weight
    return states.clone(), cells[-1].clone()


@_with_gradient.register_fake
def _(
    total: Tensor, hidden: Tensor, cell: Tensor, states: Tensor, cells: Tensor, gates: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    del total, hidden, cell, gates, weight
    return torch.empty_like(states), torch.empty_like(cells[-1])


@torch.library.custom_op("tacit::lstm_walk_back", mutates_args=())
def _walk_back(
    from_states: Tensor, from_cell: Tensor, cell: Tensor, cells: Tensor, gates: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the gates before their non-linearities, and of the first hidden and cell state.

    Args:
        from_states, from_cell: gradients of all hidden states, and of the last cell state, from after the layer.
        cell, cells: the cell state before the first time step, and after each.
        gates: after their non-linearities.
    """
    shape = (*cells.shape[:2], 4, cells.shape[-1])
    enter, forget, candidate, leave = gates.view(shape).unbind(dim=2)
    bent = cells.tanh()
    to_cell = leave * (1 - bent * bent)
    gradients = torch.empty_like(gates)  # at first the slopes, which the gradients of the states then scale
    slopes = gradients.view(shape)
    torch.mul(candidate * enter, 1 - enter, out=slopes[:, :, 0])
    torch.mul(torch.cat([cell[None], cells[:-1]]) * forget, 1 - forget, out=slopes[:, :, 1])
    torch.mul(enter, 1 - candidate * candidate, out=slopes[:, :, 2])
    torch.mul(bent * leave, 1 - leave, out=slopes[:, :, 3])
    del bent
    hidden_grad, cell_grad = torch.zeros_like(from_cell), from_cell
    along_time = (from_states, to_cell, forget, slopes[:, :, :3], slopes[:, :, 3], gradients)
    for step in reversed(list(zip(*(part.unbind() for part in along_time), strict=True))):
        from_state, onto_cell, kept, by_cell, by_hidden, gradient = step
        hidden_grad = hidden_grad + from_state
        cell_grad = torch.addcmul(cell_grad, hidden_grad, onto_cell)
        by_cell.mul_(cell_grad[:, None])
        by_hidden.mul_(hidden_grad)
        hidden_grad = torch.mm(gradient, weight, out=torch.empty_like(from_cell))  # which no autocast rounds
        cell_grad = cell_grad * kept
    return gradients, hidden_grad, cell_grad


@_walk_back.register_fake
def _(
    from_states: Tensor, from_cell: Tensor, cell: Tensor, cells: Tensor, gates: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    del from_states, cell, cells, weight
    return torch.empty_like(gates), torch.empty_like(from_cell), torch.empty_like(from_cell)


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    del output
    _, _, cell, _, cells, gates, weight = inputs
    ctx.save_for_backward(cell, cells, gates, weight)


def _backward(ctx: Any, from_states: Tensor, from_cell: Tensor) -> tuple[Tensor | None, ...]:
    if torch.is_grad_enabled():  # as with create_graph; what comes out of the walk would count as a constant
        raise UnsupportedError(
            "PrivateLSTM: has no second derivatives, as torch's LSTM on a GPU. Take no gradient of its gradient, or "
            "run it under torch.func, where every time step is spelt out."
        )
    cell, cells, gates, weight = ctx.saved_tensors
    total, hidden, first = _walk_back(from_states.contiguous(), from_cell.contiguous(), cell, cells, gates, weight)
    return total, hidden, first, None, None, None, None


_with_gradient.register_autograd(_backward, setup_context=_keep)
