"""Fingerprints: whether a run that goes on is the run that stopped.

The noise of a step may be drawn again from its own stream only if the sum is the same to the last bit. That needs the
same records, plan, network, loss and update, on the same kind of machine with the same versions. Code is compared by
its bytecode and by the plain values that it closes over, which finds an edited loss function and not every trick; what
escapes here is found by the witness of the sums, see `tacit.training.witness`.
"""

import functools
import hashlib
import platform
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tacit.core.errors import UnsupportedError
from tacit.core.randomness import Randomness
from tacit.datasets import Split
from tacit.plan import DPSGD
from tacit.training.execution import Execution, first_chunk_size
from tacit.training.run_folder import versions
from tacit.training.views import Augmented

_DIGEST_BYTES = 16
_PLAIN = (str, int, float, bool, bytes, type(None))

Fingerprint = dict[str, str]
"""A digest for each part of a run."""


def digest_tensors(tensors: Mapping[str, Tensor], *, key: bytes = b"") -> str:
    """A digest of names, types, shapes and values."""
    digest = hashlib.blake2b(key=key, digest_size=_DIGEST_BYTES)
    for name, tensor in tensors.items():
        digest.update(f"{name!r} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def data_fingerprint(records: Any, randomness: Randomness) -> str:
    """A digest of every record, under a key of the run.

    A plain digest of private records would say whether a guess at all of them is right. This one says it only to
    whoever holds the run's key, and to nobody once the key is destroyed.

    Records that are not tensors are read once, one after another.
    """
    digest = hashlib.blake2b(key=randomness.device_key("fingerprint"), digest_size=_DIGEST_BYTES)
    with torch.random.fork_rng(devices=[]):
        _hash_records(records, digest)
    return digest.hexdigest()


def network_fingerprint(model: nn.Module) -> str:
    """A digest of the modules, what they do and the shapes of what they hold; not of the weights."""
    parts = [
        f"{name}: {type(module).__module__}.{type(module).__qualname__}({module.extra_repr()}) "
        f"{describe_code(type(module).forward)}"
        for name, module in model.named_modules()
    ]
    parts += [f"{name} {value.dtype} {tuple(value.shape)}" for name, value in model.state_dict().items()]
    parts += [f"{name} trains" for name, parameter in model.named_parameters() if parameter.requires_grad]
    return digest_text("\n".join(parts))


def plan_fingerprint(plan: DPSGD) -> str:
    """A digest of everything that the guarantee depends on."""
    return digest_text(f"{plan.to_dict()!r} {plan.clipping!r} {plan.sampler!r} {plan.unsafe_no_noise}")


def machine_fingerprint(execution: Execution, plan: DPSGD, model: nn.Module) -> str:
    """A digest of what rounding depends on: versions, processor, threads, engine and chunks."""
    device = next(model.parameters()).device
    facts = {
        **versions(),
        "device": device.type,
        "processor": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "execution": repr(execution),
        "chunk": str(first_chunk_size(execution, plan, model)),
    }
    return digest_text(repr(sorted(facts.items())))


def digest_text(text: str) -> str:
    """A digest of a text."""
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def describe_code(code: Any, *, depth: int = 12) -> str:
    """A text that changes with what a function does: its bytecode, constants and plain closed-over values.

    Functions that close over themselves are followed to ``depth``.
    """
    if isinstance(code, _PLAIN):
        return repr(code)
    parts: list[Any] = []
    if isinstance(code, types.CodeType):
        parts = [code.co_name, code.co_code, code.co_names, code.co_consts]
    elif isinstance(code, types.FunctionType):
        parts = [code.__code__, code.__defaults__, [_content(cell) for cell in code.__closure__ or ()]]
    elif isinstance(code, types.MethodType):
        parts = [code.__func__, type(code.__self__).__qualname__]
    elif isinstance(code, functools.partial):
        parts = [code.func, code.args, sorted(code.keywords.items())]
    elif isinstance(code, tuple | list):
        parts = list(code)
    elif isinstance(code, frozenset | set):
        parts = sorted(map(repr, code))
    elif isinstance(call := vars(type(code)).get("__call__"), types.FunctionType):
        parts = [call]
    name = f"{type(code).__module__}.{type(code).__qualname__}"
    return f"{name}{[describe_code(part, depth=depth - 1) for part in parts] if depth else ''}"


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _hash_records(records: Any, digest: "hashlib.blake2b") -> None:
    if isinstance(records, Augmented):
        digest.update(describe_code(records.augment).encode())
        _hash_records(records.records, digest)
    elif isinstance(records, TensorDataset):
        _hash_value(records.tensors, digest)
    elif isinstance(records, Split):
        _hash_value((records.inputs, records.targets), digest)
    else:
        for place in range(len(records)):
            _hash_value(records[place], digest)


def _hash_value(value: Any, digest: "hashlib.blake2b") -> None:
    if isinstance(value, Tensor):
        digest.update(f"{value.dtype} {tuple(value.shape)};".encode())
        digest.update(_bytes(value))
    elif isinstance(value, Mapping):
        _hash_value([part for item in value.items() for part in item], digest)
    elif isinstance(value, tuple | list):
        digest.update(f"{len(value)}(".encode())
        for item in value:
            _hash_value(item, digest)
    elif isinstance(value, _PLAIN):
        digest.update(f"{value!r};".encode())
    elif hasattr(value, "__array__"):
        _hash_value(torch.as_tensor(value), digest)
    else:
        raise UnsupportedError(
            f"train_set: a record holds a {type(value).__name__}, which cannot be fingerprinted. Return tensors, "
            "numbers or text, or train without a checkpoint."
        )


def _bytes(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
