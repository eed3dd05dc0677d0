"""How good a model is on held-out data, and the losses that go with each task."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.datasets import Split
from tacit.datasets.split import Task
from tacit.gradients.losses import LossFunction

_BATCH = 2000


def classification_loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy, one for each example."""
    return F.cross_entropy(model(inputs), targets, reduction="none")


def regression_loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Squared error, one for each example."""
    outputs: Tensor = model(inputs)
    return (outputs.squeeze(1) - targets).square()


def loss_for(task: Task) -> LossFunction:
    """The loss function of a task."""
    return classification_loss if task == "classification" else regression_loss


@torch.no_grad()
def evaluate(model: nn.Module, split: Split, task: Task) -> float:
    """Accuracy as a fraction, or for a regression the mean squared error, in evaluation mode."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    total = 0.0
    for start in range(0, len(split), _BATCH):
        inputs, targets = (t.to(device) for t in split[start : start + _BATCH])
        if task == "classification":
            total += float((model(inputs).argmax(1) == targets).sum())
        else:
            total += float(regression_loss(model, inputs, targets).double().sum())
    model.train(was_training)
    return total / len(split)
