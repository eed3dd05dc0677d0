r"""Shadow models: models of the target's kind, each trained on a random half of a pool of records.

**Who is a member.** Every record joins every model by a fair coin of its own. So the membership in one model says
nothing about that in another, nor about other records, and the ceilings of the add-remove relation hold for the rates
that come out. Where each record lies in exactly half of the models, as is often done, all other models together give
away its membership in the last one.

**Against a private target** the attacker may train its shadow models in private as well, by the target's own plan
(`train_private`), or plainly (`train_plain`). The first have the target's distribution, noise included, and so the
likelihood ratio is the right one: with many models that is the stronger attack. The second show more clearly which
records are hard and which way each one pulls, and cost less. Whichever is used, the target's guarantee is a ceiling.

What an audit finds out says who was a member. It is for those who may see the data, and no part of a private release.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tacit.auditing.attacks.observations import BoolArray, Observations
from tacit.auditing.attacks.signals import confidences
from tacit.core.errors import InputError, UnsupportedError
from tacit.core.randomness import Randomness
from tacit.core.validation import check_count
from tacit.datasets import Split
from tacit.plan import DPSGD
from tacit.training.ensemble import Fitting, Progress, Stack, seeded
from tacit.training.evaluation import classification_loss
from tacit.training.execution import Execution
from tacit.training.fitting import fit
from tacit.training.private_ensemble import PrivateEnsemble
from tacit.training.side_by_side import Job, parts_of, side_by_side
from tacit.training.threads import one_thread, threads_for

Answers = Callable[[Tensor], Tensor]
"""From inputs ``[rows, …]`` to what each of several models says, ``[models, rows, classes]``."""
View = Callable[[Tensor], Tensor]
"""Inputs as an attacker asks about them, such as their mirror images."""
_ROWS_AT_ONCE = 1000


def fair_memberships(models: int, records: int, randomness: Randomness, name: str) -> BoolArray:
    """``[models, records]``: every record in every model by a coin of its own.

    Args:
        models: how many.
        records: of the pool.
        randomness: where the coins come from.
        name: of the group of models; groups of different names have coins of their own.
    """
    check_count("models", models)
    check_count("records", records)
    drawn = randomness.stream("memberships", name).integers(0, 2, size=(models, records))
    return drawn.astype(np.bool_)


def train_plain(
    build: Callable[[], nn.Module],
    pool: Split,
    member: BoolArray,
    how: Fitting,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Answers:
    """Trains one model for each row of ``member``, all of them together as one batched ensemble, in a part a thread.

    Args:
        build: makes a model, with first weights from torch's generator.
        pool: the records, on the device to train on.
        member: ``[models, records]``.
        how: steps, batches and learning rate.
        seed: of the first weights and the batches of the first model; each further one has the next.
        progress: is told the share that is done, by one thread or another.
    """
    rows = [torch.from_numpy(each) for each in _rows(pool, member)]
    device, seeds = pool.inputs.device, range(seed, seed + len(rows))
    parts = parts_of(seeded(build, seed), how.batch_size, len(rows), device)
    stacks = [Stack(build, seeds[part], device) for part in parts]

    def job(stack: Stack, part: slice) -> Job:
        return lambda tell: stack.fit(pool.inputs, pool.targets, rows[part], how, tell)

    side_by_side([*map(job, stacks, parts)], progress or _silent)
    return lambda inputs: torch.cat([stack.answers(inputs) for stack in stacks])


def train_private(
    build: Callable[[], nn.Module],
    pool: Split,
    member: BoolArray,
    plan: DPSGD,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    *,
    average_decay: float | None = None,
    seed: int = 0,
    randomness: Randomness | None = None,
    progress: Progress | None = None,
    told: Callable[[str], None] | None = None,
) -> Answers:
    """Trains one private model for each row of ``member`` by the mechanism of `tacit.fit`, which is what is attacked.

    All of them at once as one stack (`PrivateEnsemble`) where their kind allows it; by `tacit.fit` one after another
    where it does not, as with convolutions. The distribution of each model is the same either way.

    Args:
        build, pool, member, progress: see `train_plain`.
        plan: of each model. Its number of examples is public and the same for all, such as half the pool's, whatever
            the coins gave.
        optimizer: makes one for a model.
        average_decay: of the average of the weights, which then is the model; the last weights without.
        seed: of the first weights of the first model; each further one has the next.
        randomness: the source of noise, sampling and dropout; keyed by the operating system unless given.
        told: is told how the models are trained, and where not as a stack, why.
    """
    rows = _rows(pool, member)
    source = randomness or Randomness()
    models = [seeded(build, seed + number).to(pool.inputs.device) for number in range(len(rows))]
    optimizers = [optimizer(model) for model in models]
    sources = [_own_source(source, number) for number in range(len(rows))]
    parts = parts_of(models[0], plan.expected_batch_size, len(models), pool.inputs.device)
    try:
        with one_thread():
            ensembles = [
                PrivateEnsemble(
                    models[part],
                    classification_loss,
                    (pool.inputs, pool.targets),
                    rows[part],
                    plan,
                    optimizers[part],
                    sources[part],
                    average_decay=average_decay,
                )
                for part in parts
            ]
    except UnsupportedError as error:
        (told or _silent)(f"one after another, because they cannot be stacked: {error}")
        for number, (model, own) in enumerate(zip(models, rows, strict=True)):
            _fit_alone(model, Split(*pool[own]), plan, optimizers[number], sources[number], average_decay)
            (progress or _silent)((number + 1) / len(rows))
    else:
        (told or _silent)("all at once")
        with threads_for(models[0], plan.expected_batch_size, copies=len(models)):
            side_by_side([ensemble.fit for ensemble in ensembles], progress or _silent)
    for model in models:
        model.eval()
    return lambda inputs: _all_answers(models, inputs)


def _fit_alone(
    model: nn.Module,
    records: Split,
    plan: DPSGD,
    optimizer: torch.optim.Optimizer,
    source: Randomness,
    average_decay: float | None,
) -> None:
    with threads_for(model, plan.expected_batch_size):
        fit(
            model,
            classification_loss,
            records,
            plan,
            optimizer=optimizer,
            average_decay=average_decay,
            randomness=source,
            execution=Execution(compile=False),
        )


def observe(answers: Answers, pool: Split, member: BoolArray, *, views: Sequence[View] = ()) -> Observations:
    """What the models say about every record of the pool.

    Args:
        answers: of the models, from `train_plain` or `train_private`.
        pool, member: as in training.
        views: what to ask about each record beside the record itself, one query for each.
    """
    asked = [pool.inputs, *(view(pool.inputs) for view in views)]
    said = [confidences(answers(inputs), pool.targets) for inputs in asked]
    return Observations(np.stack(said, axis=1), member)


def _rows(pool: Split, member: BoolArray) -> list[npt.NDArray[np.int64]]:
    if member.ndim != 2 or member.shape[1] != len(pool):
        raise InputError(f"member of shape {member.shape}: must be [models, {len(pool)} records].")
    if not member.any(axis=1).all():
        raise InputError("member: a model has no records. Take a larger pool.")
    return [np.flatnonzero(row) for row in member]


def _own_source(source: Randomness, number: int) -> Randomness:
    """A source of one model's own, under a fixed seed too: models with the same noise would tell nothing."""
    key = source.device_key("shadow model", number)
    return Randomness.from_secret_key(key, voids_guarantee=source.voids_guarantee)


@torch.no_grad()
def _all_answers(models: Sequence[nn.Module], inputs: Tensor) -> Tensor:
    chunks = torch.split(inputs, _ROWS_AT_ONCE)
    return torch.stack([torch.cat([model(rows) for rows in chunks]) for model in models])


def _silent(_told: object) -> None:
    """Nobody watches."""
