"""All contenders by name, and which of them a run takes unless told."""

import importlib.util
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch

from tacit.benchmarking import noise_steps, plain, private_steps
from tacit.benchmarking.contenders import Contender, refusing
from tacit.benchmarking.peers import fastdp, jax_twins, opacus, per_example
from tacit.core.validation import check_choice

_MODULES = (plain, private_steps, noise_steps, per_example, opacus, fastdp, jax_twins)

CONTENDERS: Mapping[str, Contender] = MappingProxyType(
    {contender.name: contender for module in _MODULES for contender in module.CONTENDERS}
)
"""Contenders by engine name; plain training first."""


def chosen(names: Sequence[str] | None, device: torch.device) -> list[Contender]:
    """The contenders of these names, plain training first among them so that there is something to compare with.

    Without names: all whole steps that are installed. On a CPU, where a look should be quick, plain training and peers
    that compile are left out, and those that take seconds a step.
    """
    if names is None:
        whole = [c for c in CONTENDERS.values() if c.kind != "part"]
        return [c for c in whole if _why_not(c, device) is None and _is_quick(c, device)]
    for name in names:
        check_choice("engine", name, CONTENDERS)
    return [_or_refusal(CONTENDERS[name], device) for name in dict.fromkeys(("plain", *names))]


def _is_quick(contender: Contender, device: torch.device) -> bool:
    return device.type == "cuda" or not (contender.compiles or contender.patient)


def _why_not(contender: Contender, device: torch.device) -> str | None:
    if contender.device not in (None, device.type):
        return "needs a GPU" if contender.device == "cuda" else "is for CPUs"
    if contender.needs is not None and importlib.util.find_spec(contender.needs) is None:
        return f"{contender.needs} is not installed"
    return None


def _or_refusal(contender: Contender, device: torch.device) -> Contender:
    reason = _why_not(contender, device)
    return contender if reason is None else refusing(contender, reason)
