"""Opacus: hooks, ExpandedWeights and ghost clipping, each with its own optimizer, clipping and noise."""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tacit.benchmarking.contenders import CLIP, LEARNING_RATE, NOISE_MULTIPLIER, Contender, Step
from tacit.benchmarking.tasks import Task


def grad_sample_step(wrapper: str) -> Callable[[Task], Step]:
    """A step with per-example gradients written out, by one of Opacus's wrappers."""

    def prepare(task: Task) -> Step:
        model = getattr(importlib.import_module("opacus.grad_sample"), wrapper)(_fixed(task), loss_reduction="mean")
        optimizer = _optimizer("DPOptimizer", model, task)
        inputs, targets = task.batch

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(task.losses(model, inputs, targets).mean())
            optimizer.step()

        return step

    return prepare


def ghost_step(task: Task) -> Step:
    """Norms in a first backward pass, the weighted sum in a second."""
    grad_sample = importlib.import_module("opacus.grad_sample")
    clipping = importlib.import_module("opacus.utils.fast_gradient_clipping_utils")
    model = grad_sample.GradSampleModuleFastGradientClipping(
        _fixed(task), loss_reduction="mean", max_grad_norm=CLIP, use_ghost_clipping=True
    )
    optimizer = _optimizer("DPOptimizerFastGradientClipping", model, task)
    inputs, targets = task.batch

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        losses = task.losses(model, inputs, targets)
        clipping.DPTensorFastGradientClipping(model, optimizer, losses, "mean").backward()
        optimizer.step()

    return step


def _fixed(task: Task) -> nn.Module:
    """The plain model with Opacus's own layers where it needs them, such as its LSTM."""
    validator: Any = importlib.import_module("opacus.validators").ModuleValidator
    model: nn.Module = validator.fix(task.plain_model().train())
    return model.to(task.device)


def _optimizer(kind: str, model: nn.Module, task: Task) -> Any:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return getattr(importlib.import_module("opacus.optimizers"), kind)(
        torch.optim.SGD(trained, lr=LEARNING_RATE),
        noise_multiplier=NOISE_MULTIPLIER,
        max_grad_norm=CLIP,
        expected_batch_size=task.size.batch,
        loss_reduction="mean",
    )


CONTENDERS = (
    Contender("opacus-hooks", grad_sample_step("GradSampleModule"), needs="opacus", patient=True),
    Contender(
        "opacus-expanded-weights", grad_sample_step("GradSampleModuleExpandedWeights"), needs="opacus", patient=True
    ),
    Contender("opacus-ghost", ghost_step, needs="opacus"),
)
