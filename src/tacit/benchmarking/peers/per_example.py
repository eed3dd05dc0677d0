"""DP-SGD as torch's own documentation suggests it: vmap of grad, clipped and summed, the whole step compiled."""

import torch
from torch import Tensor

from tacit.benchmarking.contenders import CLIP, NOISE_MULTIPLIER, Contender, Step
from tacit.benchmarking.plain import call_with, descend
from tacit.benchmarking.tasks import Task


def vmap_step(task: Task) -> Step:
    """Per-example gradients by vmap, norms, clipping, noise and update in one compiled graph."""
    model = task.private_model()
    inputs, targets = task.batch
    parameters = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def loss(values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return task.losses(lambda z: call_with(model, values, z), x[None], y[None])[0]

    def update(values: dict[str, Tensor]) -> None:
        grads = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(values, inputs, targets)
        squares = torch.stack([grad.flatten(1).square().sum(1) for grad in grads.values()])
        factors = CLIP / squares.sum(0).sqrt().clamp_min(CLIP)
        noisy = []
        for grad in grads.values():
            clipped = torch.einsum("b,b...->...", factors, grad)
            noisy.append((clipped + NOISE_MULTIPLIER * CLIP * torch.randn_like(clipped)) / len(inputs))
        descend(list(values.values()), noisy)

    compiled = torch.compile(update, fullgraph=True, dynamic=False)
    return lambda: compiled(parameters)


CONTENDERS = (Contender("vmap-compiled", vmap_step, compiles=True),)
