"""Plain training: eager, the whole step compiled, that in a CUDA graph, and both layouts that convolutions may have.

tacit's own program asks torch's compiler for channels last wherever a model convolves on a GPU. Left to itself, the
compiler (``GraphLowering.decide_layout_opt``) decides so for the whole step of the CNN and the WRN, which it takes for
inference; not for the ViT, with one convolution among two thousand operations; and where it compiles loss and backward
pass, for the forward pass of the WRN alone. Which layout is faster is not known before it is measured, so plain steps
are taken both ways, by the compiler's choice and with channels last, and the fastest of all is compared with. In the
same way the whole step is taken once more as tacit's short programs are compiled.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from tacit.benchmarking.contenders import LEARNING_RATE, Contender, RefusedError, Step
from tacit.benchmarking.tasks import Task
from tacit.gradients.capturing import capturing_stream

_WARM_UP_STEPS = 3
_CHANNELS_LAST = {"force_layout_optimization": True}  # as in tacit's own program
_SHORT_PROGRAM = {"combo_kernels": True, "triton.autotune_pointwise": False}  # the same
_CONVOLUTIONS = nn.Conv1d, nn.Conv2d, nn.Conv3d

Options = dict[str, str | int | bool | Callable[..., object]]
"""Those of torch's compiler."""


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


def compiled_step(task: Task, options: Options | None = None) -> Step:
    """Forward, backward and update in one compiled graph, on a static batch."""
    model = task.plain_model()
    inputs, targets = task.batch
    parameters = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def mean_loss(values: dict[str, Tensor]) -> Tensor:
        return task.losses(lambda x: call_with(model, values, x), inputs, targets).mean()

    def update(values: dict[str, Tensor]) -> None:
        descend(list(values.values()), list(torch.func.grad(mean_loss)(values).values()))

    compiled = torch.compile(update, fullgraph=True, dynamic=False, options=options)
    return lambda: compiled(parameters)


def graph_step(task: Task, options: Options | None = None) -> Step:
    """The compiled step, recorded once and replayed without the host."""
    return captured(compiled_step(task, options), task.device)


def parts_step(task: Task, options: Options | None = None) -> Step:
    """Loss and its backward pass compiled, as ``torch.compile(model)`` does it, with SGD's update, in a CUDA graph."""
    model = task.plain_model()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=LEARNING_RATE)
    inputs, targets = task.batch
    mean_loss = torch.compile(lambda: task.losses(model, inputs, targets).mean(), dynamic=False, options=options)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        torch.autograd.backward(mean_loss())
        optimizer.step()

    return captured(step, task.device)


def channels_last(build: Callable[[Task, Options | None], Step]) -> Callable[[Task], Step]:
    """The same step, compiled with the channels last as tacit's is."""

    def prepare(task: Task) -> Step:
        if not any(isinstance(module, _CONVOLUTIONS) for module in task.plain_model().modules()):
            raise RefusedError("has no convolutions, whose channels could be last")
        return build(task, dict(_CHANNELS_LAST))

    return prepare


def shared_launches(task: Task) -> Step:
    """The compiled step in a CUDA graph, where kernels that do not wait for each other share launches, and take blocks
    that were not timed with an empty cache.
    """
    return graph_step(task, dict(_SHORT_PROGRAM))


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
    Contender("plain-graph-shared-launches", shared_launches, kind="plain", compiles=True, device="cuda"),
    *(
        Contender(name, channels_last(build), kind="plain", compiles=True, device="cuda")
        for name, build in (("plain-graph-channels-last", graph_step), ("plain-parts-channels-last", parts_step))
    ),
)
