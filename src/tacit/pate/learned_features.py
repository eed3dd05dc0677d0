"""What a student has learned to look at, beside the features that were there before it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.core.errors import InputError
from tacit.datasets.blocks import in_blocks

_ROWS_AT_ONCE = 1024


class LearnedFeatures:
    r"""Rows of length 1 in both halves: :math:`[f / \lVert f \rVert,\ (g - m) / \lVert g - m \rVert]`.

    f are the features that were there, g what enters the last linear layer of a student, and m the mean of g over the
    public inputs. Every input passes by itself. The student learned from noisy answers alone, so that the map is as
    public as they are.

    Args:
        student: which is left as it was.
        public: inputs that decide m.
    """

    def __init__(self, student: nn.Module, public: Tensor) -> None:
        self._student = student
        self._mean = self._seen(public).mean(0)

    def __call__(self, inputs: Tensor, features: Tensor) -> Tensor:
        """``[inputs, numbers]``, from inputs and the features that were there."""
        known = F.normalize(features.flatten(1).float(), dim=1)
        return torch.cat([known, F.normalize(self._seen(inputs) - self._mean, dim=1)], dim=1)

    @torch.no_grad()
    def _seen(self, inputs: Tensor) -> Tensor:
        training = self._student.training
        self._student.eval()
        try:
            return in_blocks(lambda rows: last_features(self._student, rows), inputs, _ROWS_AT_ONCE)
        finally:
            self._student.train(training)


def last_features(model: nn.Module, inputs: Tensor) -> Tensor:
    """What enters the model's last linear layer, ``[inputs, numbers]``."""
    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise InputError("model: has no linear layer whose inputs a generator could match. Take another student.")
    seen: list[Tensor] = []
    hook = linear[-1].register_forward_pre_hook(lambda _layer, arguments: seen.append(arguments[0]))
    try:
        model(inputs)
    finally:
        hook.remove()
    return seen[-1].flatten(1)
