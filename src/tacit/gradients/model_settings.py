"""What of a model, beside the values of its tensors, decides what a pass computes; and a number for it.

A probe's verdict and a compiled program hold for a model as it was. What can change it is looked at in every step, so
nearly all of that is one comparison of a list of objects with the list from the last step.
"""

import operator
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

_PLAIN = (int, float, str)
_STRIDE, _COUNT, _PLACE = Tensor.stride, Tensor.numel, Tensor.get_device
_TYPE = operator.attrgetter("dtype", "requires_grad")


class ModelSettings:
    """Numbers the settings of a model: the same for the same, another for any other."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._last: _Seen | None = None
        self._known: dict[Hashable, int] = {}

    def number(self) -> int:
        """The number of the settings as they are: every module with every plain value that it holds, such as its mode
        or a temperature, and which parameters it has, how they lie in memory and whether they train.

        Worked out again only where something was replaced since the last call.
        """
        if self._last is None or not self._last.is_still_so():
            modules = list(self._model.modules())
            everything = [*self._model.parameters(), *self._model.buffers()]
            tensors = [tensor for tensor in everything if tensor.layout is torch.strided]
            layouts = _layouts_of(tensors)
            settings = (*map(_settings_of, modules), *layouts)
            number = self._known.setdefault(settings, len(self._known))
            self._last = _Seen(modules, tensors, _held_by(modules), layouts, number)
        return self._last.number


class _Seen(NamedTuple):
    """All modules as they were last seen, what they held, and its number."""

    modules: list[nn.Module]
    tensors: list[Tensor]
    held: list[object]
    layouts: list[Hashable]
    number: int

    def is_still_so(self) -> bool:
        held = _held_by(self.modules)
        return (
            len(held) == len(self.held)
            and all(map(operator.is_, held, self.held))
            and _layouts_of(self.tensors) == self.layouts
        )


def _held_by(modules: Sequence[nn.Module]) -> list[object]:
    """All objects that these modules hold, parts included: as long as they are the same, so are a model's modules."""
    held: list[object] = []
    for module in modules:
        own = vars(module)
        held += own.values()
        held += own["_modules"].values()
        held += own["_parameters"].values()
        held += own["_buffers"].values()
    return held


def _layouts_of(tensors: Sequence[Tensor]) -> list[Hashable]:
    """How tensors lie in memory, for which a program is made, and whether they train: ``model.to()`` and
    ``requires_grad_()`` change that in the tensors that a model has.

    Strides and numbers of elements together, as shapes take longer to ask for.
    """
    return [*map(_STRIDE, tensors), *map(_COUNT, tensors), *map(_PLACE, tensors), *map(_TYPE, tensors)]


def _settings_of(module: nn.Module) -> Hashable:
    plain = [value for value in vars(module).values() if isinstance(value, _PLAIN)]
    return (id(module), *plain, *map(id, module._parameters.values()))
