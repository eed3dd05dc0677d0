"""Plain training, three ways: eager, the whole step compiled, and that in a CUDA graph."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tacit.benchmarking.contenders import LEARNING_RATE, Contender, Step
from tacit.benchmarking.tasks import Task
from tacit.gradients.compiling import capturing_stream

_WARM_UP_STEPS = 3


def eager_step(task: Task) -> Step:
    """The loop that everybody writes."""
    model = task.plain_model()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=LEARNING_RATE)
    inputs, targets = task.batch

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(task.losses(model, inputs, targets).mean())
        optimizer.step()

    return step


def compiled_step(task: Task) -> Step:
    """Forward, backward and update in one compiled graph, on a static batch."""
    model = task.plain_model()
    inputs, targets = task.batch
    parameters = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def mean_loss(values: dict[str, Tensor]) -> Tensor:
        return task.losses(lambda x: call_with(model, values, x), inputs, targets).mean()

    def update(values: dict[str, Tensor]) -> None:
        descend(list(values.values()), list(torch.func.grad(mean_loss)(values).values()))

    compiled = torch.compile(update, fullgraph=True, dynamic=False)
    return lambda: compiled(parameters)


def graph_step(task: Task) -> Step:
    """The compiled step, recorded once and replayed without the host."""
    return captured(compiled_step(task), task.device)


def parts_step(task: Task) -> Step:
    """Loss and its backward pass compiled, as ``torch.compile(model)`` does it, with SGD's update, in a CUDA graph."""
    model = task.plain_model()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=LEARNING_RATE)
    inputs, targets = task.batch
    mean_loss = torch.compile(lambda: task.losses(model, inputs, targets).mean(), dynamic=False)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        torch.autograd.backward(mean_loss())
        optimizer.step()

    return captured(step, task.device)


def captured(step: Step, device: torch.device) -> Step:
    """Records a step in a CUDA graph, after a few runs on a stream of its own."""
    side = capturing_stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(_WARM_UP_STEPS):
            step()
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        step()

    def replay() -> Step:
        graph.replay()
        return step  # holds the tensors that the graph reads and writes

    return replay


def call_with(model: nn.Module, parameters: dict[str, Tensor], inputs: Tensor) -> Tensor:
    """The model's output with these parameters in the place of its own."""
    logits: Tensor = torch.func.functional_call(model, parameters, (inputs,))
    return logits


def descend(parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """SGD's update, in place."""
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.sub_(gradient, alpha=LEARNING_RATE)


CONTENDERS = (
    Contender("plain", eager_step, kind="plain"),
    Contender("plain-compiled", compiled_step, kind="plain", compiles=True),
    Contender("plain-graph", graph_step, kind="plain", compiles=True, device="cuda"),
    Contender("plain-parts-graph", parts_step, kind="plain", compiles=True, device="cuda"),
)
