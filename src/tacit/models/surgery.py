"""Copies of a model with some of its modules exchanged."""

import copy
import itertools
from collections.abc import Callable

from torch import nn
from torch.nn.parameter import is_lazy

from tacit.core.errors import UnsupportedError


def with_replacements(model: nn.Module, replace: Callable[[nn.Module, str], nn.Module | None]) -> nn.Module:
    """A deep copy of ``model`` in which each module that ``replace`` answers with another one is that other
    one.

    ``replace`` gets a module of the copy and its dotted name. A module that is used in several places is
    replaced by one module in all of them; the given model is left as it is.
    """
    for name, module in model.named_modules():
        own = itertools.chain(module.parameters(recurse=False), module.buffers(recurse=False))
        if any(is_lazy(tensor) for tensor in own):
            raise UnsupportedError(
                f"{name or 'model'} ({type(module).__name__}): its shapes are unknown before a forward pass. "
                "Run the model once on an example, then replace."
            )
    duplicate = copy.deepcopy(model)
    answers: dict[int, nn.Module | None] = {
        id(module): replace(module, name) for name, module in duplicate.named_modules()
    }
    for parent in list(duplicate.modules()):
        for name, child in list(parent._modules.items()):
            answer = None if child is None else answers[id(child)]
            if answer is not None:
                setattr(parent, name, answer)
    whole = answers[id(duplicate)]
    return duplicate if whole is None else whole
