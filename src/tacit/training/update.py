"""The optimizer's update from the noisy gradient: post-processing, any torch optimizer."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


class Update:
    """Hands gradients to an optimizer and takes its step.

    Whatever gradients were left on the optimizer's parameters before, by a backward pass on raw data, are dropped: a
    parameter that does not train here must not move.

    On a GPU the step of ``torch.optim.SGD`` is captured and replayed while the gradients stay in their places and no
    option changes, because launching its kernels one by one would take a small model longer than its gradients.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._previous: Any = None
        self._captured: tuple[Any, torch.cuda.CUDAGraph] | None = None
        self._given_up = type(optimizer) is not torch.optim.SGD

    def __call__(self, parameters: Mapping[str, nn.Parameter], gradient: Mapping[str, Tensor]) -> None:
        """One step of the optimizer."""
        self._place(parameters, gradient)
        hooked = self._optimizer._optimizer_step_pre_hooks or self._optimizer._optimizer_step_post_hooks
        if self._given_up or hooked or not all(tensor.is_cuda for tensor in gradient.values()):
            self._optimizer.step()
            return
        facts = self._facts()
        if self._captured is not None and self._captured[0] == facts:
            self._captured[1].replay()
        elif self._captured is not None:
            self._captured, self._given_up = None, True  # a schedule, perhaps: capturing again and again costs more
            self._optimizer.step()
        elif facts == self._previous:
            self._captured = facts, self._capture()
            self._captured[1].replay()
        else:
            self._optimizer.step()
        self._previous = facts

    def _place(self, parameters: Mapping[str, nn.Parameter], gradient: Mapping[str, Tensor]) -> None:
        ours = {id(parameter) for parameter in parameters.values()}
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and id(parameter) not in ours:
                    parameter.grad = None
        for name, parameter in parameters.items():
            value = gradient[name].to(parameter.dtype)
            if parameter.grad is not value:
                parameter.grad = value

    def _facts(self) -> Any:
        """What a captured step has fixed: where gradients and parameters lie, and every option."""
        return [
            (
                [(p.data_ptr(), 0 if p.grad is None else p.grad.data_ptr()) for p in group["params"]],
                [value.data_ptr() for p in group["params"] for value in self._buffers(p)],
                [(key, value) for key, value in group.items() if key != "params"],
            )
            for group in self._optimizer.param_groups
        ]

    def _buffers(self, parameter: Tensor) -> list[Tensor]:
        return [value for value in self._optimizer.state.get(parameter, {}).values() if isinstance(value, Tensor)]

    def _capture(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._optimizer.step()
        return graph
