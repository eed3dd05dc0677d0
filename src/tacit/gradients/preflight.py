"""One step on the user's own model and data shape, compared with the reference engine before anything is spent."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tacit.core.errors import UnsupportedError
from tacit.core.privacy import Neighbours
from tacit.gradients.batches import count_examples, take
from tacit.gradients.clipped_grad import ClippedGrad, ClippedSum, clipped_grad

_EXAMPLES = 3
_TOLERANCE = {torch.float64: 1e-7, torch.float32: 2e-3}
_LOW_PRECISION_TOLERANCE = 1e-1


def preflight(grad: ClippedGrad, *batch: Any) -> None:
    """Refuses a model on which ``grad`` does not equal the reference engine, or which writes data into its buffers.

    Runs on the first three examples of the batch, and leaves model, buffers and random generators as they were. Whether
    it passes depends on the structure of the model; nothing about the examples' values is reported.

    Raises:
        UnsupportedError: the engine's result differs from one example at a time, which means that the model mixes
            examples, or a buffer was changed by the forward pass.
    """
    examples = count_examples(batch)
    few = take(batch, torch.arange(min(_EXAMPLES, examples)), examples)
    with torch.random.fork_rng():
        _check_buffers(grad, few)
        # Dropout differs from pass to pass, so results are compared without it.
        with _evaluation_mode(grad.model):
            actual = grad(*few)
            expected = clipped_grad(grad.model, grad.loss_fn, clipping=grad.clipping, engine="reference")(*few)
    _compare(grad, actual, expected)


def _check_buffers(grad: ClippedGrad, few: Any) -> None:
    before = {name: buffer.clone() for name, buffer in grad.model.named_buffers()}
    grad(*few)
    changed = [name for name, buffer in grad.model.named_buffers() if not _same(buffer, before.get(name))]
    if changed:
        with torch.no_grad():
            for name, buffer in grad.model.named_buffers():
                if name in before:
                    buffer.copy_(before[name])
        raise UnsupportedError(
            f"{', '.join(changed)}: the forward pass writes raw data into this buffer, without noise. Remove the "
            "buffer, or put its layer in eval mode."
        )


def _same(buffer: Tensor, before: Tensor | None) -> bool:
    return before is not None and torch.equal(buffer.nan_to_num(), before.nan_to_num())


def _compare(grad: ClippedGrad, actual: ClippedSum, expected: ClippedSum) -> None:
    for name, reference in expected.grads.items():
        parameter = grad.model.get_parameter(name)
        tolerance = _TOLERANCE.get(parameter.dtype, _LOW_PRECISION_TOLERANCE)
        scale = float(torch.linalg.vector_norm(reference)) + tolerance * grad.sensitivity(Neighbours.ADD_REMOVE)
        if not float(torch.linalg.vector_norm(actual.grads[name] - reference)) <= tolerance * scale:
            raise UnsupportedError(
                f"{name}: the {grad.engine} engine's gradient differs from that of one example at a time, so the model "
                "mixes examples. Look for operations along the batch dimension, or use engine='reference'."
            )


@contextmanager
def _evaluation_mode(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
