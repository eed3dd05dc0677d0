"""What a layer rule is: how one operation turns its inputs and its output's gradient into contributions.

A rule belongs to one or more torch functions and says, given the call's arguments, which of them are parameters and
what each contributes. The recorder does all the rest, so a rule is a few lines of algebra.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from tacit.core.errors import UnsupportedError
from tacit.gradients.contributions import Contribution

Contributions = Mapping[str, Callable[[], Contribution]]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the examples are in a layer's output: ``dim`` counts them, ``fold`` rows to an example (dim 0 only).

    A model that flattens ``[examples, tokens, n]`` to ``[examples * tokens, n]`` has fold = tokens.
    """

    dim: int
    fold: int
    examples: int

    def rows(self, values: Tensor) -> Tensor:
        """The same values with the examples in front: ``[examples, ...]``."""
        if self.fold > 1:
            return values.reshape(self.examples, self.fold, *values.shape[1:])
        return values if self.dim == 0 else values.movedim(self.dim, 0)

    def channels(self, values: Tensor) -> Tensor:
        """``[examples, channels, *positions]`` for operations that take ``[rows, channels, …]``.

        Where several rows belong to one example, such as the frames of a film, they are one more position.
        """
        if self.dim != 0:
            raise UnsupportedError(
                f"layer: its examples are in dimension {self.dim} of the output and must be in the first. Transpose "
                "its input, or use engine='functional'."
            )
        rows = self.rows(values)
        return rows.movedim(1, 2) if self.fold > 1 else rows

    def tokens(self, values: Tensor, *, features: int = 1) -> Tensor:
        """``[examples, tokens, *features]``: everything between the examples and the last dimensions is a token."""
        rows = self.rows(values)
        return rows.reshape(rows.shape[0], -1, *rows.shape[rows.dim() - features :])


def product_dtype(input: Tensor, grad: Tensor) -> torch.dtype:
    """The type in which a layer's input and its output's gradient are multiplied, in any order.

    Where one is of half precision, as under autocast, the layer itself saw its input so, whatever type it came in. On
    a CPU products of half precision are slow, and float32 holds them exactly.
    """
    both = torch.promote_types(input.dtype, grad.dtype)
    half = next((t.dtype for t in (input, grad) if t.dtype in (torch.float16, torch.bfloat16)), None)
    if half is None:
        return both
    return half if input.is_cuda else torch.promote_types(both, torch.float32)


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of an operation, sorted: its parameters by role, its inputs that must be kept, and its other options.

    Attributes:
        parameters: role (such as ``weight``) to the tensor in that role, where the call has one.
        inputs: the activations that the rule needs again, by name.
        options: whatever else the rule needs.
    """

    parameters: Mapping[str, Tensor]
    inputs: Mapping[str, Tensor]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Rule:
    """A layer kind.

    Attributes:
        name: how messages call it.
        functions: the torch functions it speaks for; all have one signature, that of ``sort``.
        sort: sorts the arguments of a call.
        contribute: (call, gradient of its output, layout) to contributions by role. Each is a function without
            arguments, called for the roles that train alone: what is frozen costs nothing.
    """

    name: str
    functions: tuple[Callable[..., Any], ...]
    sort: Callable[..., Call]
    contribute: Callable[[Call, Tensor, Layout], Contributions]


def present(**tensors: Tensor | None) -> dict[str, Tensor]:
    """The given tensors without those that are ``None``."""
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}
