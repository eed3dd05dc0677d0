"""JAX twins of some models: plain JAX training, and JAX-Privacy's clipped gradients, both compiled by XLA."""

import importlib
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any

import torch

from tacit.benchmarking.contenders import (
    CLIP,
    LEARNING_RATE,
    NOISE_MULTIPLIER,
    AsynchronousStep,
    Contender,
    RefusedError,
    Step,
)
from tacit.benchmarking.tasks import Task

_PRECISIONS = {"float32": "highest", "tf32": "tensorfloat32"}


class _Loop(AsynchronousStep):
    """Carries the parameters and the random key from step to step."""

    def __init__(self, jax: Any, update: Callable[..., Any], state: Any, batch: Any, scope: Callable[[], Any]):
        self._jax, self._update, self._scope = jax, update, scope
        self._state, self._batch = state, batch

    def __call__(self) -> None:
        with self._scope():
            self._state = self._update(self._state, *self._batch)

    def wait(self) -> None:
        self._jax.block_until_ready(self._state[0])


def plain_step(task: Task) -> Step:
    """Gradient of the mean loss, and the update."""

    def gradient(jax: Any, loss: Callable[..., Any], parameters: Any, batch: Any, key: Any) -> Any:
        del key
        return jax.grad(loss)(parameters, *batch)

    return _prepare(task, gradient)


def private_step(task: Task) -> Step:
    """JAX-Privacy's sum of clipped gradients, Gaussian noise, and the update."""
    clipping: Any = importlib.import_module("jax_privacy.clipping")

    def gradient(jax: Any, loss: Callable[..., Any], parameters: Any, batch: Any, key: Any) -> Any:
        clipped = clipping.clipped_grad(
            loss, l2_clip_norm=CLIP, batch_argnums=(1, 2), normalize_by=float(task.size.batch)
        )(parameters, *batch)
        leaves, tree = jax.tree.flatten(clipped)
        scale = NOISE_MULTIPLIER * CLIP / task.size.batch
        keys = jax.random.split(key, len(leaves))
        noisy = [leaf + scale * jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys, strict=True)]
        return jax.tree.unflatten(tree, noisy)

    return _prepare(task, gradient)


def _prepare(task: Task, gradient: Callable[..., Any]) -> Step:
    if task.workload.name not in _TWINS:
        raise RefusedError(f"no JAX twin of {task.workload.name} has been written")
    if task.precision not in _PRECISIONS:
        raise RefusedError(f"its twins are not written for {task.precision}")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take most of the GPU's memory
    jax = importlib.import_module("jax")
    apply = _TWINS[task.workload.name]
    weights = [parameter.detach().cpu().numpy() for parameter in task.plain_model().parameters()]
    place = jax.devices("gpu" if task.device.type == "cuda" else "cpu")[0]

    def loss(parameters: Any, inputs: Any, targets: Any) -> Any:
        logs = jax.nn.log_softmax(apply(jax, parameters, inputs))
        return -jax.numpy.take_along_axis(logs, targets[:, None], axis=1).mean()

    def update(state: Any, inputs: Any, targets: Any) -> Any:
        parameters, key = state
        key, fresh = jax.random.split(key)
        found = gradient(jax, loss, parameters, (inputs, targets), fresh)
        return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, parameters, found), key

    def scope() -> AbstractContextManager[object]:
        precision: AbstractContextManager[object] = jax.default_matmul_precision(_PRECISIONS[task.precision])
        return precision

    # All of it is committed to the device, or the second call would be compiled anew.
    state = jax.device_put((weights, jax.random.key(0)), place)
    batch = jax.device_put(tuple(_array(tensor) for tensor in task.batch), place)
    return _Loop(jax, jax.jit(update, donate_argnums=0), state, batch, scope)


def _array(tensor: torch.Tensor) -> Any:
    return tensor.cpu().numpy()


def _mlp(jax: Any, parameters: Any, x: Any) -> Any:
    *hidden, last = list(zip(parameters[::2], parameters[1::2], strict=True))
    for weight, bias in hidden:
        x = jax.nn.relu(x @ weight.T + bias)
    return x @ last[0].T + last[1]


def _cnn(jax: Any, parameters: Any, x: Any) -> Any:
    first, first_bias, second, second_bias, *affine = parameters
    for weight, bias, padding in ((first, first_bias, 2), (second, second_bias, 0)):
        x = jax.lax.conv_general_dilated(x, weight, (2, 2), [(padding, padding)] * 2)
        x = jax.numpy.tanh(x + bias[:, None, None])
        x = jax.lax.reduce_window(x, -jax.numpy.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 1, 1), "VALID")
    x = x.reshape(x.shape[0], -1)
    x = jax.numpy.tanh(x @ affine[0].T + affine[1])
    return x @ affine[2].T + affine[3]


_TWINS: Mapping[str, Callable[[Any, Any, Any], Any]] = MappingProxyType({"mlp": _mlp, "cnn": _cnn})

CONTENDERS = (
    Contender("jax", plain_step, kind="plain", framework="jax", needs="jax", compiles=True),
    Contender("jax-privacy", private_step, framework="jax", needs="jax_privacy", compiles=True),
)
