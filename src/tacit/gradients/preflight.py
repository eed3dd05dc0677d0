"""One step on the user's own model and data shape, compared with the reference engine before anything is spent."""

from typing import Any

import torch
from torch import Tensor

from tacit.core.errors import UnsupportedError
from tacit.core.privacy import Neighbours
from tacit.gradients.arguments import tensors_in
from tacit.gradients.batches import count_examples, distinct_rows, take
from tacit.gradients.clipped_grad import ClippedGrad, ClippedSum, clipped_grad
from tacit.gradients.losses import trainable
from tacit.gradients.model_state import evaluation_mode, full_precision, preserved_generators
from tacit.gradients.recorder import Function, Observer
from tacit.gradients.rounding import operand_bits

_EXAMPLES = 3
_TOLERANCE = {torch.float64: 1e-7, torch.float32: 2e-3}
_LOW_PRECISION_TOLERANCE = 1e-1
_NORM_TOLERANCE = {torch.float64: 1e-6, torch.float32: 2e-2}
_LOW_PRECISION_NORM_TOLERANCE = 3e-1
_FULL_BITS = 24
_NEGLIGIBLE = 1e-9  # of the clipping norm


def preflight(grad: ClippedGrad, *batch: Any) -> None:
    """Refuses a model on which ``grad`` does not equal the reference engine, or whose forward pass writes to its state.

    Runs on the first examples of the batch that differ, three of them at most, and leaves model, buffers and random
    generators as they were. Both the clipped sum and the norms before clipping are compared, since clipping hides
    a wrong scale. Whether it passes depends on the structure of the model; nothing about the examples' values is
    reported.

    Raises:
        UnsupportedError: the engine's result differs from one example at a time, which means that the model mixes
            examples, or a buffer or parameter was changed by the forward pass.
    """
    examples = count_examples(batch)
    if examples == 0:
        return
    few = take(batch, torch.tensor(distinct_rows(batch, examples, _EXAMPLES), dtype=torch.long), examples)
    with preserved_generators(), grad.eagerly(), full_precision():
        _check_state(grad, few)
        precision = _Precision()
        with torch.no_grad(), precision:
            grad.loss_fn(grad.model, *few)
        # Dropout differs from pass to pass, so results are compared without it.
        with evaluation_mode(grad.model):
            actual = grad(*few)
            expected = clipped_grad(grad.model, grad.loss_fn, clipping=grad.clipping, engine="reference")(*few)
        _compare(grad, actual, expected, low=precision.low)


def _check_state(grad: ClippedGrad, few: Any) -> None:
    before = {name: buffer.clone() for name, buffer in grad.model.named_buffers()}
    versions = {name: parameter._version for name, parameter in grad.model.named_parameters()}
    try:
        grad(*few)
    finally:
        changed = [name for name, buffer in grad.model.named_buffers() if not _same(buffer, before.get(name))]
        with torch.no_grad():
            for name, buffer in grad.model.named_buffers():
                if name in before:
                    buffer.copy_(before[name])
    changed += [name for name, p in grad.model.named_parameters() if p._version != versions[name]]
    if changed:
        raise UnsupportedError(
            f"{', '.join(changed)}: the forward pass writes to it, which lets raw data in without noise. Remove "
            "the write, or put its layer in eval mode."
        )


def _same(buffer: Tensor, before: Tensor | None) -> bool:
    return before is not None and torch.allclose(buffer.double(), before.double(), rtol=0, atol=0, equal_nan=True)


class _Precision(Observer):
    """Notes whether a pass computes in half precision anywhere, as it does under autocast."""

    def __init__(self) -> None:
        super().__init__()
        self.low = False

    def observe(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        output = function(*args, **kwargs)
        self.low |= any(t.dtype in (torch.bfloat16, torch.float16) for t in tensors_in(output))
        return output


def _compare(grad: ClippedGrad, actual: ClippedSum, expected: ClippedSum, *, low: bool) -> None:
    for name, reference in expected.grads.items():
        parameter = grad.model.get_parameter(name)
        tolerance = _TOLERANCE.get(parameter.dtype, _LOW_PRECISION_TOLERANCE)
        if low or operand_bits() < _FULL_BITS:
            tolerance = _LOW_PRECISION_TOLERANCE
        scale = float(torch.linalg.vector_norm(reference)) + tolerance * grad.sensitivity(Neighbours.ADD_REMOVE)
        if not float(torch.linalg.vector_norm(actual.grads[name] - reference)) <= tolerance * scale:
            raise UnsupportedError(
                f"{name}: the {grad.engine} engine's gradient differs from that of one example at a time, so the model "
                "mixes examples. Look for operations along the batch dimension, or use engine='reference'."
            )
    _compare_norms(grad, actual.unsafe_norms, expected.unsafe_norms, low=low)


def _compare_norms(grad: ClippedGrad, actual: Tensor, expected: Tensor, *, low: bool) -> None:
    """Norms of book-keeping hold an allowance for rounding, so they may be off by more than sums."""
    dtypes = [parameter.dtype for parameter in trainable(grad.model).values()]
    tolerance = max(_NORM_TOLERANCE.get(dtype, _LOW_PRECISION_NORM_TOLERANCE) for dtype in dtypes)
    tolerance = _LOW_PRECISION_NORM_TOLERANCE if low or operand_bits() < _FULL_BITS else tolerance
    finite = torch.isfinite(actual) & torch.isfinite(expected)
    # An allowance is above zero even for a gradient that is zero. Next to the clipping norm it is nothing.
    least = _NEGLIGIBLE * grad.sensitivity(Neighbours.ADD_REMOVE)
    largest = torch.where(finite, expected, torch.zeros_like(expected)).amax(0).clamp(min=least)
    if bool(((actual - expected).abs() > tolerance * largest)[finite].any()):
        raise UnsupportedError(
            f"loss: the {grad.engine} engine's gradient norms differ from those of one example at a time, so an "
            "example's loss depends on its batch. Return losses that are not divided by the size of the batch, or use "
            "engine='reference'."
        )
