"""fastDP: book-keeping with its mixed choice between Gram matrices and per-example gradients."""

import importlib
from typing import Any

import torch

from tacit.benchmarking.contenders import CLIP, LEARNING_RATE, NOISE_MULTIPLIER, Contender, RefusedError, Step
from tacit.benchmarking.tasks import Task


def fastdp_step(task: Task) -> Step:
    """A step of its engine; a model of which it would leave parameters out is refused."""
    model = task.plain_model().train()
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    engine: Any = importlib.import_module("fastDP").PrivacyEngine(
        model,
        batch_size=task.size.batch,
        sample_size=len(task.records[0]),
        epochs=1,
        noise_multiplier=NOISE_MULTIPLIER,
        max_grad_norm=CLIP,
        clipping_mode="MixOpt",
        clipping_fn="Abadi",
        clipping_style="all-layer",
    )
    optimizer = torch.optim.SGD(trained.values(), lr=LEARNING_RATE)
    engine.attach(optimizer)
    inputs, targets = task.batch

    def step() -> None:
        torch.autograd.backward(task.losses(model, inputs, targets).mean())
        optimizer.step()
        optimizer.zero_grad()

    step()
    missing = sorted(trained.keys() - {name for name, _ in engine.named_params})
    if missing:
        raise RefusedError(f"leaves {len(missing)} parameters untrained, such as {missing[0]}")
    return step


CONTENDERS = (Contender("fastdp", fastdp_step, needs="fastDP"),)
