"""Training without any privacy: the baselines that private figures are compared with.

Nothing here clips, adds noise or spends a budget. What comes out depends on every record as it is, and has no
guarantee, which results say (`tacit.recipes.guarantee`).
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from tacit.datasets import Split
from tacit.gradients.losses import LossFunction
from tacit.plan import Preparation
from tacit.recipes.recipe import Configuration
from tacit.training.averaging import WeightAverage
from tacit.training.fitting import Callback, show_model
from tacit.training.optimizers import make_optimizer
from tacit.training.preparation import apply
from tacit.training.threads import threads_for


def prepare_plainly(preparations: Sequence[Preparation], inputs: Tensor) -> nn.Sequential:
    """The maps that preparations make of their statistics as they are, where in private they see them with noise."""
    transforms: list[nn.Module] = []
    for preparation in preparations:
        if transforms:
            inputs = apply(transforms[-1], inputs)
        transforms.append(preparation.transform(preparation.statistic(inputs), tuple(inputs.shape[1:])))
    return nn.Sequential(*transforms)


def train_plainly(
    model: nn.Module,
    loss_fn: LossFunction,
    train: Split,
    *,
    batch_size: int,
    steps: int,
    optimizer: torch.optim.Optimizer,
    seed: int,
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
    average_decay: float | None = None,
    change: Callable[[Tensor], Tensor] | None = None,
    callbacks: Sequence[Callback] = (),
) -> None:
    """Descends in place along the mean gradient of lots, each drawn anew from all records with replacement.

    Args:
        model, loss_fn, optimizer, scheduler, average_decay, callbacks: as in `tacit.fit`.
        train: the records.
        batch_size, steps: how many in a lot, and how many lots.
        seed: of the lots.
        change: what every parameter's mean gradient goes through before the update.
    """
    generator = torch.Generator().manual_seed(seed)
    average = None if average_decay is None else WeightAverage(model, average_decay)
    for step in range(1, steps + 1):
        rows = torch.randint(len(train), (batch_size,), generator=generator).to(train.inputs.device)
        optimizer.zero_grad()
        loss_fn(model, train.inputs[rows], train.targets[rows]).mean().backward()  # type: ignore[no-untyped-call]
        for parameter in model.parameters():
            if change is not None and parameter.grad is not None:
                parameter.grad = change(parameter.grad)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        if average is not None:
            average.update(model)
        show_model(callbacks, step, model, average)
    if average is not None:
        average.copy_to(model)


def fit_plainly(
    configuration: Configuration, model: nn.Module, train: Split, seed: int, after_step: Callable[[int], None]
) -> str:
    """`train_plainly` by a configuration; what computed the gradients."""
    rate = configuration.learning_rate
    optimizer = make_optimizer(configuration.optimizer, model.parameters(), rate, noise_scale=0.0)
    with threads_for(model, configuration.batch_size):
        train_plainly(
            model,
            configuration.loss,
            train,
            batch_size=configuration.batch_size,
            steps=configuration.steps_for(len(train)),
            optimizer=optimizer,
            seed=seed,
            scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, configuration.schedule),
            average_decay=configuration.average,
            callbacks=[lambda step, _: after_step(step)],
        )
    return "autograd, without privacy"
