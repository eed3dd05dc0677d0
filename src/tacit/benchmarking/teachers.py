"""Ways to train the same teachers of PATE: together, and one after the other.

Every contender trains the teachers that the others train, from the same records, first weights and batches; they differ
by rounding alone. The loops one after the other are what everybody writes in PyTorch.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.datasets import DataSet, with_features
from tacit.models import build, default_model, scatter_features
from tacit.pate.linear_teachers import CONSTANT_FEATURE, LinearFitting, LinearTeachers
from tacit.pate.partition import Indices
from tacit.training.ensemble import Fitting, Stack, seeded
from tacit.training.threads import threads_for

_LARGE_IMAGE = 24
TOGETHER, IN_TURN, IN_TURN_TOO = "together", "one after the other", "one after the other, by inner products"

Predict = Callable[[Tensor], npt.NDArray[np.int64]]
"""From inputs to ``[teachers, inputs]``, the classes that trained teachers choose."""
Train = Callable[[], Predict]
"""Trains teachers that are built, and returns what they choose."""
Prepare = Callable[[Sequence[Indices], int], Train]
"""Builds teachers for these parts, to be trained for so many steps."""


@dataclasses.dataclass(frozen=True)
class Teaching:
    """Teachers of one kind on one data set.

    Attributes:
        kind: ``linear`` or ``network``.
        model: what the teachers are, in words.
        data: with the features that they see, on the device that they are trained on.
        steps: of a whole training.
        contenders: the ways by name; the first trains all of them together.
    """

    kind: str
    model: str
    data: DataSet
    steps: int
    contenders: dict[str, Prepare]


def linear_teaching(data: DataSet, device: torch.device) -> Teaching:
    """Linear teachers: on scattering features of large images, on anything else as it is."""
    large = _is_large_image(data)
    features = (with_features(data, scatter_features(data.input_shape).eval()) if large else data).to(device)

    def together(parts: Sequence[Indices], steps: int) -> Train:
        how = LinearFitting(steps=steps)
        return lambda: LinearTeachers.train(features.train, data.classes, parts, how).predictions

    def in_turn_too(parts: Sequence[Indices], steps: int) -> Train:
        return lambda: _all_of([together([part], steps)() for part in parts])

    def in_turn(parts: Sequence[Indices], steps: int) -> Train:
        how = LinearFitting(steps=steps)
        return lambda: _all_of([_descend(*features.train[part], data.classes, how) for part in parts])

    ways: dict[str, Prepare] = {TOGETHER: together, IN_TURN: in_turn, IN_TURN_TOO: in_turn_too}
    return Teaching("linear", "linear on scattering" if large else "linear", features, LinearFitting.steps, ways)


def network_teaching(data: DataSet, device: torch.device) -> Teaching:
    """The network that suits the images, by AdamW."""
    name = default_model(data.input_shape) if _is_large_image(data) else "mlp"
    records = data.to(device)

    def make() -> nn.Module:
        return build(name, data.input_shape, data.classes)

    def together(parts: Sequence[Indices], steps: int) -> Train:
        stack = Stack(make, range(len(parts)), device)

        def train() -> Predict:
            rows = [torch.from_numpy(part) for part in parts]
            stack.fit(*_pair(records), rows, Fitting(steps=steps), lambda _share: None)
            return lambda inputs: stack.predictions(inputs).cpu().numpy()

        return train

    def in_turn(parts: Sequence[Indices], steps: int) -> Train:
        networks = [seeded(make, seed).to(device) for seed in range(len(parts))]

        def train() -> Predict:
            for seed, (network, part) in enumerate(zip(networks, parts, strict=True)):
                _fit_alone(network, records, part, seed, Fitting(steps=steps))
            return _all_of([_chosen_by(network) for network in networks])

        return train

    ways: dict[str, Prepare] = {TOGETHER: together, IN_TURN: in_turn}
    return Teaching("network", name, records, Fitting.steps, ways)


TEACHINGS: dict[str, Callable[[DataSet, torch.device], Teaching]] = {
    "linear": linear_teaching,
    "network": network_teaching,
}


def _fit_alone(network: nn.Module, data: DataSet, part: Indices, seed: int, how: Fitting) -> None:
    """A network by itself, as everybody trains one; the batches are those of `Stack`."""
    own, generator = torch.from_numpy(part), torch.Generator().manual_seed(seed)
    rows = own[torch.randint(len(own), (how.steps, how.batch_size), generator=generator)]
    optimizer = torch.optim.AdamW(network.parameters(), lr=how.learning_rate, weight_decay=how.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, how.steps)
    with threads_for(network, how.batch_size):
        for batch in rows.to(data.train.inputs.device):
            inputs, targets = data.train[batch]
            optimizer.zero_grad()
            F.cross_entropy(network(inputs), targets).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()


def _descend(inputs: Tensor, targets: Tensor, classes: int, how: LinearFitting) -> Predict:
    """A linear teacher by itself: the descent of `LinearTeachers`, by autograd on the weights."""
    inputs = inputs.flatten(1)
    mean = inputs.mean(0)
    length = (inputs - mean).square().sum(1).mean().sqrt()
    rows = torch.cat([(inputs - mean) / length, inputs.new_full((len(inputs), 1), CONSTANT_FEATURE)], dim=1)
    layer = nn.Linear(rows.shape[1], classes, bias=False, device=rows.device)
    with threads_for(layer, len(rows)), torch.no_grad():
        products = rows @ rows.T
        step = 1 / ((products @ products).square().sum().pow(0.25) / (2 * len(rows)) + how.ridge)
        before = torch.zeros_like(layer.weight)
        layer.weight.zero_()
        for turn in range(how.steps):
            with torch.enable_grad():
                loss = F.cross_entropy(layer(rows), targets)
                (slope,) = torch.autograd.grad(loss, layer.weight)
            after = layer.weight - step * (slope + how.ridge * layer.weight)
            layer.weight.copy_(after + turn / (turn + 3) * (after - before))
            before = after
    weights = before[:, :-1] / length
    offset = CONSTANT_FEATURE * before[:, -1] - weights @ mean
    return lambda asked: (asked.flatten(1) @ weights.T + offset).argmax(1)[None].cpu().numpy()


def _chosen_by(network: nn.Module) -> Predict:
    def predict(inputs: Tensor) -> npt.NDArray[np.int64]:
        with torch.no_grad():
            chosen: Tensor = network.eval()(inputs).argmax(1)
        return chosen[None].cpu().numpy()

    return predict


def _all_of(predictors: Sequence[Predict]) -> Predict:
    return lambda inputs: np.concatenate([predict(inputs) for predict in predictors])


def _is_large_image(data: DataSet) -> bool:
    return len(data.input_shape) == 3 and min(data.input_shape[1:]) >= _LARGE_IMAGE


def _pair(data: DataSet) -> tuple[Tensor, Tensor]:
    return data.train.inputs, data.train.targets
