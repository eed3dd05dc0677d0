"""What the recipes on colour images share: random views, half precision."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from tacit.core.errors import InputError
from tacit.core.validation import check_count
from tacit.training.augmentation import self_mixup, views
from tacit.training.views import Augment

DATASET = "cifar10-jpeg"


def random_views(count: int, *, mixtures: int = 0) -> Callable[[Generator], Augment]:
    """Makes ``count`` random crops and flips of each image, and so many mixtures of two of them (`self_mixup`).

    For a loss `over_views`: all of them are one example, whose gradient is clipped once.
    """
    check_count("multiplicity", count)
    if check_count("mixtures", mixtures, minimum=0) and count < 2:
        raise InputError(
            f"mixtures={mixtures}, multiplicity={count}: a mixture is of two views. Take a multiplicity of at least 2, "
            "or no mixtures."
        )

    def make(generator: Generator) -> Augment:
        def augment(images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
            made = views(images, count, generator)
            if mixtures:
                made = torch.cat([made, self_mixup(made, mixtures, generator)], dim=1)
            return made, targets

        return augment

    return make


def half_precision_loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy, one for each example; on a GPU the model computes in bfloat16."""
    with torch.autocast(inputs.device.type, dtype=torch.bfloat16, enabled=inputs.is_cuda):
        logits: Tensor = model(inputs)
    return F.cross_entropy(logits.float(), targets, reduction="none")
