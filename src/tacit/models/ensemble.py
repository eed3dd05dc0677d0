"""Several models as one: the mean of what they say, put together anew from what was saved."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from tacit.core.errors import InputError
from tacit.core.validation import check_count
from tacit.models.public_map import PublicMap

_MEMBERS = "members."
_PIXELS, _DIRECTIONS, _HEADS = "members.0.members.", "members.1.0.directions", "members.1.1.members."


class MeanOfProbabilities(nn.Module):
    r"""Says :math:`\log \frac1M \sum_m p_m(x)`, with the probabilities :math:`p_m` of its members.

    Its outputs are logarithms of probabilities, so that it may be a member itself, and softmax gives the mean back.

    Args:
        members: at least one, of the same classes.
    """

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        if not len(self.members):
            raise InputError("members=0: there is nobody to take the mean of. Give at least one.")

    def forward(self, inputs: Tensor) -> Tensor:
        """``[inputs, classes]``."""
        said = torch.stack([member(inputs).log_softmax(1) for member in self.members])
        return said.logsumexp(0) - math.log(len(self.members))


def perceptron(inputs: int, hidden: int, classes: int) -> nn.Sequential:
    """One hidden layer of ReLU on rows of numbers."""
    for name, size in (("inputs", inputs), ("hidden", hidden), ("classes", classes)):
        check_count(name, size)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def networks_and_perceptrons(
    networks: Sequence[nn.Module], see: PublicMap, perceptrons: Sequence[nn.Module]
) -> MeanOfProbabilities:
    """The mean of networks on inputs and of perceptrons on public features.

    Both kinds count alike, whatever their numbers; features are made once for all perceptrons.

    Args:
        networks: at least one.
        see: the map to the features.
        perceptrons: any number; without any the mean is that of the networks, and the map is left out.
    """
    by_pixels = MeanOfProbabilities(networks)
    if not perceptrons:
        return by_pixels
    return MeanOfProbabilities([by_pixels, nn.Sequential(see, MeanOfProbabilities(perceptrons))])


def first_network(weights: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """What of the state of `networks_and_perceptrons` is the state of its first network; None for any other state."""
    for prefix in (f"{_PIXELS}0.", f"{_MEMBERS}0."):
        found = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
        if found:
            return found
    return None


def has_perceptrons(weights: Mapping[str, Tensor]) -> bool:
    """Whether a state of `networks_and_perceptrons` holds any, and with them a map to features."""
    return _DIRECTIONS in weights


def ensemble_of_weights(
    weights: Mapping[str, Tensor],
    build: Callable[[], nn.Module],
    fixed: nn.Module,
    input_shape: Sequence[int],
    classes: int,
) -> MeanOfProbabilities:
    """A new `networks_and_perceptrons` to load a state into: its numbers of members and their sizes.

    Args:
        weights: the state. One of something else gives a module that does not fit it.
        build: makes a network.
        fixed: of the `PublicMap`, which no weight tells; not looked at without perceptrons.
        input_shape: the shape of one input.
        classes: how many there are.
    """
    if not has_perceptrons(weights):
        return MeanOfProbabilities(build() for _ in range(_count(weights, _MEMBERS)))
    with torch.no_grad():
        numbers = fixed(torch.zeros(1, *input_shape)).numel()
    directions = weights[_DIRECTIONS].shape[-1]
    hidden = max((len(value) for name, value in weights.items() if name == f"{_HEADS}0.0.bias"), default=1)
    return networks_and_perceptrons(
        [build() for _ in range(_count(weights, _PIXELS))],
        PublicMap(fixed, torch.zeros(numbers), torch.zeros(numbers, directions)),
        [perceptron(directions, hidden, classes) for _ in range(_count(weights, _HEADS))],
    )


def _count(weights: Mapping[str, Tensor], prefix: str) -> int:
    """How many members have weights under such names."""
    return len({name.removeprefix(prefix).split(".")[0] for name in weights if name.startswith(prefix)})
