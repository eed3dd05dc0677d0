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
    remaining = iter(tensors)

    def walk(node: Any) -> Any:
        if isinstance(node, Tensor):
            return next(remaining)
        if isinstance(node, list | tuple):
            parts = [walk(item) for item in node]
            return type(node)(*parts) if hasattr(node, "_fields") else type(node)(parts)
        if isinstance(node, dict):
            return {key: walk(value) for key, value in node.items()}
        return node

    return walk(tree)
