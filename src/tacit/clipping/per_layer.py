"""Clipping of each layer's gradient at a norm of its own."""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence

from tacit.clipping.bound import BoundClipping, check_names, shrink
from tacit.core.errors import InputError
from tacit.core.validation import check_positive


@dataclasses.dataclass(frozen=True)
class PerLayer:
    r"""Scales layer l's part :math:`g_l` of an example's gradient by :math:`\min(1, C_l / \|g_l\|_2)`.

    A layer is everything that shares a module prefix: ``conv1.weight`` and ``conv1.bias`` are the layer
    ``conv1``, and parameters of the model itself are the layer ``""``. The sensitivity of the whole sum is
    that of the stacked vector, :math:`\sqrt{\sum_l C_l^2}` (twice that when an example is replaced), so every
    coordinate of every layer needs noise in proportion to this total, not to its own :math:`C_l`.

    Reference: McMahan, Ramage, Talwar, Zhang, Learning Differentially Private Recurrent Language Models,
    2018, https://arxiv.org/abs/1710.06963, section 2.2.

    Args:
        bound: a number C, shared equally: each of L layers gets :math:`C / \sqrt{L}`, so that the total is C;
            or a mapping from every layer's name to its own bound.
    """

    bound: float | Mapping[str, float] = dataclasses.field(hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.bound, Mapping):
            check_positive("bound", self.bound, remedy="Typical clipping norms lie between 0.01 and 10.")
            return
        if not self.bound:
            raise InputError("bound={}: must name at least one layer. Give a number to share it between all layers.")
        checked = {layer: check_positive(f"bound[{layer!r}]", value) for layer, value in self.bound.items()}
        object.__setattr__(self, "bound", checked)  # our own copy: the caller's mapping may change later

    def bind(self, names: Collection[str]) -> BoundClipping:
        """One group for each layer, in the order in which the layers first appear."""
        layers: dict[str, list[str]] = {}
        for name in check_names(names):
            layers.setdefault(name.rpartition(".")[0], []).append(name)
        groups = tuple(tuple(members) for members in layers.values())
        return BoundClipping(groups=groups, bounds=self._bounds_of(list(layers)), rule=shrink)

    def _bounds_of(self, layers: Sequence[str]) -> tuple[float, ...]:
        if not isinstance(self.bound, Mapping):
            return (float(self.bound) / math.sqrt(len(layers)),) * len(layers)
        missing = [layer for layer in layers if layer not in self.bound]
        if missing:
            raise InputError(f"bound: has no entry for the layers {missing!r}. Name every layer that is trained.")
        unknown = [layer for layer in self.bound if layer not in layers]
        if unknown:
            raise InputError(f"bound: names layers {unknown!r} that are not trained. The layers are {list(layers)!r}.")
        return tuple(self.bound[layer] for layer in layers)

    def describe(self) -> str:
        """A clause for statements and reports."""
        if not isinstance(self.bound, Mapping):
            return f"per-layer clipping with equal norms of total {self.bound:g}"
        norms = ", ".join(f"{layer or 'the model itself'}: {value:g}" for layer, value in self.bound.items())
        return f"per-layer clipping at norms {norms}"
