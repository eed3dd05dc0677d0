"""The optimizer's update from the noisy gradient: post-processing, any torch optimizer."""

import dataclasses
import itertools
import operator
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

_OPTIONS = ("lr", "momentum", "weight_decay", "nesterov", "maximize")
_OPTIONS_OF, _PARAMETERS_OF = operator.itemgetter(*_OPTIONS), operator.itemgetter("params")  # of a group, in every step


@dataclasses.dataclass(frozen=True, eq=False)
class Descent:
    """A step of p - rate g for every parameter.

    Attributes:
        targets: for each name a parameter and its rate.
        others: what else the optimizer holds.
    """

    targets: Mapping[str, tuple[Tensor, float]]
    others: Sequence[Tensor]


class Update:
    """Hands gradients to an optimizer and takes its step.

    Whatever gradients were left on the optimizer's parameters before, by a backward pass on raw data, are dropped: a
    parameter that does not train here must not move.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._descent: tuple[object, Descent | None] = None, None

    def __call__(self, parameters: Mapping[str, nn.Parameter], gradient: Mapping[str, Tensor]) -> None:
        """One step of the optimizer."""
        self.place(parameters, gradient, self._others(parameters))
        self._optimizer.step()

    def place(
        self, parameters: Mapping[str, nn.Parameter], gradient: Mapping[str, Tensor], others: Sequence[Tensor]
    ) -> None:
        """Puts the gradients where the optimizer, and whoever wants to see them, looks for them.

        ``others`` is what else the optimizer holds, found by who asks in every step: these lose theirs.
        """
        for name, parameter in parameters.items():
            value = gradient[name]
            if parameter.grad is not value:
                parameter.grad = value.to(parameter.dtype)
        for held in others:
            held.grad = None

    def drop_gradients(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """Gives up the gradients of the last step, so that the next ones can take their memory."""
        for parameter in (*self._parameters(), *parameters.values()):
            parameter.grad = None

    def descent(self, parameters: Mapping[str, nn.Parameter]) -> Descent | None:
        """Parameters and rates, where the optimizer's step is p - rate g and nothing else.

        That is ``torch.optim.SGD`` on all of these parameters, without momentum and the like. A captured step then
        takes it by itself; every other optimizer is asked after it. The same object as long as nothing has changed.
        """
        if type(self._optimizer) is not torch.optim.SGD:
            return None
        options = list(map(_OPTIONS_OF, self._optimizer.param_groups))
        held = list(map(id, self._parameters()))
        facts = list(map(Tensor.data_ptr, parameters.values())), options, held, self._is_hooked
        if self._descent[0] != facts:
            self._descent = facts, self._find_descent(parameters)
        return self._descent[1]

    @property
    def _is_hooked(self) -> bool:
        return bool(self._optimizer._optimizer_step_pre_hooks or self._optimizer._optimizer_step_post_hooks)

    def _others(self, parameters: Mapping[str, nn.Parameter]) -> list[Tensor]:
        ours = set(map(id, parameters.values()))
        return [held for held in self._parameters() if id(held) not in ours]

    def _parameters(self) -> list[Tensor]:
        return list(itertools.chain.from_iterable(map(_PARAMETERS_OF, self._optimizer.param_groups)))

    def _find_descent(self, parameters: Mapping[str, nn.Parameter]) -> Descent | None:
        optimizer = self._optimizer
        if self._is_hooked:
            return None
        rates = {}
        for group in optimizer.param_groups:
            if any(group[option] for option in _OPTIONS[1:]):
                return None
            rates.update({id(parameter): group["lr"] for parameter in group["params"]})
        found = {
            name: (parameter.detach(), rates[id(parameter)])
            for name, parameter in parameters.items()
            if isinstance(rates.get(id(parameter)), float | int)
        }
        plain = all(p.dtype == torch.float32 and p.is_contiguous() for p, _ in found.values())
        return Descent(found, self._others(parameters)) if plain and len(found) == len(parameters) else None
