"""What of a model, beside the values of its tensors, decides what a pass computes; and a number for it.

A probe's verdict and a compiled program hold for a model as it was. What can change it is looked at in every step, so
nearly all of that is one comparison of a list of objects with the list from the last step.
"""

import contextlib
import enum
import itertools
import numbers
import operator
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.utils.weak import WeakIdKeyDictionary

_PLAIN = (int, float, str, numbers.Number, bytes, enum.Enum, slice, range, torch.dtype, torch.device, type(None))
_STRIDE, _PLACE = Tensor.stride, Tensor.get_device
_TYPE = operator.attrgetter("shape", "dtype", "requires_grad")
_VERSION = operator.attrgetter("_version")
_OWN = frozenset(vars(nn.Module()))  # what every module has; looked at by itself, or of no consequence
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_PARTS = ("_modules", "_parameters", "_buffers")
_MOST = 64  # parts of an attribute that are looked at, those of its parts included
_REMEMBERED = 1024
_END = object()  # no module holds it


_Place = tuple[int, str]
"""A module, by its number, and an attribute of it."""


class ModelSettings:
    """Numbers the settings of a model: the same for the same, another for any other."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._last: _Seen | None = None
        self._known: dict[Hashable, int] = {}
        self._numbers = itertools.count()
        self._identities = _Identities()
        self._notes: set[_Place] = set()
        self._counts: set[_Place] = set()

    def number(self) -> int:
        """The number of the settings as they are: every module with the attributes that it holds, its mode and hooks,
        and which parameters it has, how they lie in memory and whether they train.

        Numbers and text are compared by value, in tuples, lists and dictionaries too; functions and tensors that are
        neither parameters nor buffers by identity, tensors also by whether they were written to. Worked out again only
        where something was replaced since the last call.
        """
        return self._now().number

    def number_for_probe(self) -> int:
        """The same but for numbers and text that a pass of the model changes itself, such as a count of its calls: the
        probe has seen it do so, and would else be repeated in every step.
        """
        return self._now().number_for_probe

    def _now(self) -> "_Seen":
        if self._last is None or not self._last.is_still_so():
            self._last = self._look()
        return self._last

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """What a pass of the model does to its own attributes is no setting, such as attention weights that it keeps
        for whoever asks: from now on they are left out; numbers and text only for the probe.
        """
        before = self._described_by_place()
        yield
        after = self._described_by_place()
        for plain, changed in ((False, self._notes), (True, self._counts)):
            places = before[plain].keys() | after[plain].keys()
            found = {place for place in places if before[plain].get(place) != after[plain].get(place)}
            if found - changed:
                changed |= found
                self._last = None

    def _described_by_place(self) -> tuple[dict["_Place", Hashable], dict["_Place", Hashable]]:
        """All attributes but numbers and text; and these."""
        keys = _Keys(self._identities)
        described: tuple[dict[_Place, Hashable], dict[_Place, Hashable]] = {}, {}
        for module in self._model.modules():
            for name, value in _attributes(module):
                plain = isinstance(value, _PLAIN)
                described[plain][self._identities.number(module), name] = keys.of(value)
        return described

    def _look(self) -> "_Seen":
        modules = list(self._model.modules())
        everything = [*self._model.parameters(), *self._model.buffers()]
        tensors = [tensor for tensor in everything if tensor.layout is torch.strided]
        keys = _Keys(self._identities)
        layouts = _layouts_of(tensors)
        beside = (*_hooks_of_all(), *layouts)

        def number_without(left_out: set[_Place]) -> int:
            return self._number_of((*beside, *(self._described(module, keys, left_out) for module in modules)))

        number, number_for_probe = number_without(self._notes), number_without(self._notes | self._counts)
        holders = _holders(modules, keys.containers)
        held = list(itertools.chain.from_iterable(holders))
        return _Seen(tensors, keys.tensors, holders, held, layouts, keys.versions, number, number_for_probe)

    def _described(self, module: nn.Module, keys: "_Keys", left_out: set["_Place"]) -> Hashable:
        place = self._identities.number(module)
        attributes = [(name, keys.of(v)) for name, v in _attributes(module) if (place, name) not in left_out]
        parameters = [(name, p if p is None else self._identities.number(p)) for name, p in module._parameters.items()]
        hooks = [tuple(vars(module)[name]) for name in _HOOKS]
        return place, module.training, *attributes, *parameters, *hooks

    def _number_of(self, settings: Hashable) -> int:
        number = self._known.get(settings)
        if number is None:
            number = self._known[settings] = next(self._numbers)
            if len(self._known) > _REMEMBERED:  # a schedule may change a number in every step
                del self._known[next(iter(self._known))]
        return number


class _Seen(NamedTuple):
    """All modules as they were last seen, what they held, and its number."""

    tensors: list[Tensor]
    plain_tensors: list[Tensor]
    holders: list[Iterable[object]]
    held: list[object]
    layouts: list[Hashable]
    versions: list[int]
    number: int
    number_for_probe: int

    def is_still_so(self) -> bool:
        # Both end with what no module holds, so that lengths are compared as well.
        held = itertools.chain.from_iterable(self.holders)
        return (
            all(map(operator.is_, held, self.held))
            and _layouts_of(self.tensors) == self.layouts
            and list(map(_VERSION, self.plain_tensors)) == self.versions
        )


class _Identities:
    """Numbers for objects, of which none gets another's even if it lies where a former one has been.

    They are not kept alive for that, as a tensor may be large; what cannot be referred to weakly is.
    """

    def __init__(self) -> None:
        self._weak = WeakIdKeyDictionary()
        self._strong: dict[int, tuple[object, int]] = {}
        self._numbers = itertools.count()

    def number(self, thing: object) -> int:
        try:
            if thing not in self._weak:
                self._weak[thing] = next(self._numbers)
            return int(self._weak[thing])
        except TypeError:
            return self._strong.setdefault(id(thing), (thing, next(self._numbers)))[1]


class _Keys:
    """Describes attributes, and collects what among them can change in its place."""

    def __init__(self, identities: _Identities) -> None:
        self.tensors: list[Tensor] = []
        self.versions: list[int] = []
        self._identities = identities
        self._containers: dict[int, Any] = {}
        self._left = _MOST

    @property
    def containers(self) -> list[Any]:
        """Every one once, though many modules may hold it."""
        return list(self._containers.values())

    def of(self, attribute: Any) -> Hashable:
        """Equal for values that a pass cannot tell apart."""
        self._left = _MOST
        return self._of(attribute)

    def _of(self, value: Any) -> Hashable:
        if isinstance(value, _PLAIN):
            return type(value), repr(value)  # 1, 1.0 and True are equal, and not the same in arithmetic
        if isinstance(value, Tensor):
            return self._of_tensor(value)
        if isinstance(value, tuple | list | dict):
            return self._of_container(value)
        return self._identities.number(value) if callable(value) else (type(value),)

    def _of_tensor(self, value: Tensor) -> Hashable:
        """Parameters are looked at where they are held, and what has a history was computed by a pass."""
        if isinstance(value, nn.Parameter) or value.grad_fn is not None or value.is_inference():
            return (Tensor,)
        self.tensors.append(value)
        self.versions.append(value._version)
        return self._identities.number(value), value._version

    def _of_container(self, value: Any) -> Hashable:
        self._left -= max(1, len(value))
        if self._left < 0:
            return (type(value),)
        self._containers[id(value)] = value
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        return type(value), *map(self._of, parts)


def _attributes(module: nn.Module) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in vars(module).items() if name not in _OWN]


def _hooks_of_all() -> list[object]:
    return [*torch_module._global_forward_hooks, *torch_module._global_forward_pre_hooks]


def _holders(modules: Sequence[nn.Module], containers: Sequence[Any]) -> list[Iterable[object]]:
    """What to go through for all objects that these modules hold, parts included, and the numbers of their hooks.

    They show what is there whenever they are gone through; a dictionary that another one has taken the place of is seen
    where its module holds it. As long as all objects are the same, so are a model's modules.
    """
    found: list[Iterable[object]] = [torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks]
    for own in map(vars, modules):
        found += [own.values(), *(own[name].values() for name in _PARTS), *(own[name] for name in _HOOKS)]
    for container in containers:
        found += [container, container.values()] if isinstance(container, dict) else [container]
    return [*found, (_END,)]


def _layouts_of(tensors: Sequence[Tensor]) -> list[Hashable]:
    """How tensors lie in memory, for which a program is made, and whether they train: ``model.to()`` and
    ``requires_grad_()`` change that in the tensors that a model has.
    """
    return [*map(_STRIDE, tensors), *map(_PLACE, tensors), *map(_TYPE, tensors)]
