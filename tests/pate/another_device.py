"""A device beside the CPU, played by the CPU: real numbers, and an error where tensors of two devices meet.

What runs on it keeps to the rules of a GPU: operands are on one device (but for numbers of no dimension, and indices
from the CPU), nothing becomes a numpy array without `cpu()`, and what is made is made where it is needed.
"""

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

AWAY = torch.device("lazy", 0)  # autograd runs this kind in the thread of the CPU
_COPIES = ("aten::_to_copy", "aten::copy_")


class AwayTensor(Tensor):
    """A tensor on the other device; what it holds lies on the CPU."""

    held: Tensor
    __torch_function__: ClassVar[Any] = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> "AwayTensor":
        made = Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=AWAY,
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})

    def tolist(self):
        return self.held.tolist()

    def __getitem__(self, index):
        return super().__getitem__(_from_cpu(index))

    def __setitem__(self, index, value):
        super().__setitem__(_from_cpu(index), value)


class AnotherDevice(TorchDispatchMode):
    """Within, tensors can be made on and moved to `AWAY`."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})


def generator(device: torch.device | str = "cpu") -> torch.Generator:
    """In the place of `torch.Generator`, which makes none for `AWAY`."""
    del device
    return torch.default_generator.clone_state()


def _from_cpu(index):
    return torch.as_tensor(index) if isinstance(index, list | np.ndarray) else index


def _run(function, args, kwargs):
    name = function._schema.name
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    _check_together(name, tensors)
    away = any(isinstance(tensor, AwayTensor) for tensor in tensors)
    if kwargs.get("device") is not None:
        away = torch.device(kwargs["device"]).type == AWAY.type
        kwargs = {**kwargs, "device": "cpu"}
    elif name == "aten::copy_":
        away = isinstance(args[0], AwayTensor)
    known = {id(_held(tensor)): tensor for tensor in tensors}
    result = function(*tree_map(_held, args), **tree_map(_held, kwargs))

    def placed(value):
        if not isinstance(value, Tensor):
            return value
        if function._schema.is_mutable and id(value) in known:
            return known[id(value)]
        return AwayTensor(value) if away else value

    return tree_map(placed, result)


def _check_together(name: str, tensors: list[Tensor]) -> None:
    if name in _COPIES:
        return
    if "index" in name:  # indices may come from the CPU, never from a device to it
        tensors = tensors[:1] if isinstance(tensors[0], AwayTensor) else tensors
    kinds = {isinstance(tensor, AwayTensor) for tensor in tensors if tensor.dim()}
    if len(kinds) > 1:
        shapes = [(type(tensor).__name__, tuple(tensor.shape)) for tensor in tensors]
        raise RuntimeError(f"{name}: tensors on two devices, {shapes}")


def _held(value):
    return value.held if isinstance(value, AwayTensor) else value
