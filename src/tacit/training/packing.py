"""State dicts as JSON and named tensors: what torch would pickle, without pickles."""

import math
from typing import Any

from torch import Tensor

from tacit.core.errors import InputError, UnsupportedError

Tensors = dict[str, Tensor]


def pack(name: str, value: Any, tensors: Tensors) -> Any:
    """``value`` as plain JSON; its tensors go into ``tensors`` under names that begin with ``name``.

    Dicts, lists, tuples, tensors, numbers, strings and None come back from `unpack` as they were, with their types and
    to the last bit. Everything else is refused: it would need a pickle, which can run code when it is read.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, Tensor):
        tensors[name] = value.detach().to("cpu", copy=True).contiguous()
        return {"tensor": name}
    if isinstance(value, dict) and all(isinstance(key, str | int) for key in value):
        return {"dict": [[key, pack(f"{name}.{key}", item, tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [pack(f"{name}.{place}", item, tensors) for place, item in enumerate(value)]}
    raise UnsupportedError(
        f"checkpoint: {name} is a {type(value).__name__}, which cannot be saved without a pickle. Use an optimizer and "
        "a schedule whose state is numbers and tensors."
    )


def unpack(packed: Any, tensors: Tensors) -> Any:
    """What `pack` was given.

    Raises:
        InputError: ``packed`` does not come from `pack`.
    """
    if packed is None or isinstance(packed, bool | int | str | float):
        return packed
    try:
        ((kind, content),) = packed.items()
        if kind == "float":
            return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[content]
        if kind == "tensor":
            return tensors[content]
        if kind == "dict":
            return {key: unpack(item, tensors) for key, item in content}
        items = [unpack(item, tensors) for item in content]
        return {"list": items, "tuple": tuple(items)}[kind]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"its state has no known form ({type(error).__name__})") from None
