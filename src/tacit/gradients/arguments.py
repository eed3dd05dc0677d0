"""Tensors among the arguments and results of torch functions: trees of tensors, lists, tuples, mappings and values."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor


def tensors_in(tree: Any) -> Iterator[Tensor]:
    """All tensors in arguments or results, in order."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from tensors_in(item)
    elif isinstance(tree, dict):
        yield from tensors_in(list(tree.values()))


def replaced(tree: Any, tensors: list[Tensor]) -> Any:
    """The same tree with these tensors in the place of its own, in order."""
    return _replaced(tree, iter(tensors))


def _replaced(node: Any, remaining: Iterator[Tensor]) -> Any:
    # No function within `replaced`: one that calls itself would keep the tensors until garbage is collected.
    if isinstance(node, Tensor):
        return next(remaining)
    if isinstance(node, list | tuple):
        parts = [_replaced(item, remaining) for item in node]
        return type(node)(*parts) if hasattr(node, "_fields") else type(node)(parts)
    if isinstance(node, dict):
        return {key: _replaced(value, remaining) for key, value in node.items()}
    return node
