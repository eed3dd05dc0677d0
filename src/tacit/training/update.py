"""The optimizer's update from the noisy gradient: post-processing, any torch optimizer."""

from collections.abc import Hashable, Mapping

import torch
from torch import Tensor, nn


class Update:
    """Hands gradients to an optimizer and takes its step.

    Whatever gradients were left on the optimizer's parameters before, by a backward pass on raw data, are dropped: a
    parameter that does not train here must not move.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def __call__(self, parameters: Mapping[str, nn.Parameter], gradient: Mapping[str, Tensor]) -> None:
        """One step of the optimizer."""
        self.place(parameters, gradient)
        self.run()

    def place(self, parameters: Mapping[str, nn.Parameter], gradient: Mapping[str, Tensor]) -> None:
        """Puts the gradients where the optimizer looks for them."""
        for name, parameter in parameters.items():
            value = gradient[name]
            if parameter.grad is not value:
                parameter.grad = value.to(parameter.dtype)
        ours = {id(parameter) for parameter in parameters.values()}
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in ours:
                    parameter.grad = None

    def run(self) -> None:
        """The optimizer's step, with the gradients in their places."""
        self._optimizer.step()

    def facts(self) -> Hashable:
        """What a captured step would fix: where parameters and buffers lie, and every option.

        None where a step must not be captured: an optimizer other than ``torch.optim.SGD`` may decide on the host
        what to do, and so may hooks.
        """
        optimizer = self._optimizer
        hooked = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
        options = [value for group in optimizer.param_groups for key, value in group.items() if key != "params"]
        if type(optimizer) is not torch.optim.SGD or hooked or any(isinstance(value, Tensor) for value in options):
            return None
        return tuple(
            (
                tuple(parameter.data_ptr() for parameter in group["params"]),
                tuple(place for parameter in group["params"] for place in self._buffers(parameter)),
                tuple(value for key, value in group.items() if key != "params"),
            )
            for group in optimizer.param_groups
        )

    def _buffers(self, parameter: Tensor) -> list[int]:
        state = self._optimizer.state.get(parameter, {})
        return [value.data_ptr() for value in state.values() if isinstance(value, Tensor)]
