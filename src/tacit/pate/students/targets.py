"""What a student shall say of every public input, from a few noisy answers."""

import torch
from torch import Tensor, nn

from tacit.pate.propagation import Propagation
from tacit.pate.students.student import Lesson


def spread_targets(lesson: Lesson, features: Tensor, classes: int, how: Propagation, sharpness: float) -> Tensor:
    """Distributions for all inputs, ``[inputs, classes]``: the answers spread along the features, then `sharpened`."""
    rows, labels = lesson.rows.cpu().numpy(), lesson.labels.cpu().numpy()
    spread = torch.from_numpy(how.spread_labels(features, rows, labels, classes))
    return sharpened(spread, sharpness).float().to(lesson.inputs.device)


def sharpened(distributions: Tensor, power: float) -> Tensor:
    r"""Rows :math:`p^s / \sum p^s` for the power s: what is likely becomes more so."""
    sharp = distributions.pow(power)
    return sharp / sharp.sum(1, keepdim=True)


@torch.no_grad()
def classes_of(model: nn.Module, inputs: Tensor) -> int:
    """How many classes a model tells apart."""
    return int(model(inputs[:1]).shape[1])
