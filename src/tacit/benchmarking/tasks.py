"""What is measured: a model of some size with its losses and records, on a device, in a precision."""

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.benchmarking.networks import GPT, SequenceClassifier, ViT, perceptron, with_lora
from tacit.core.errors import InputError
from tacit.core.validation import check_choice, check_count
from tacit.models import tanh_cnn, wide_resnet

PRECISIONS = ("float32", "tf32", "bfloat16")
AXES = ("batch", "width", "depth", "sequence")
RECORDS_A_BATCH = 4  # the data set holds this many batches, so that a sampler has something to choose from
_SEED = 1
_MLP_INPUTS, _LSTM_TOKENS, _IMAGENET_CLASSES = 784, 256, 1000


@dataclasses.dataclass(frozen=True)
class Size:
    """How large a model and its batch are; an axis that a model does not have is 0.

    ``outputs`` counts classes or tokens. It is no axis: it stays while the others grow.
    """

    batch: int
    width: int = 0
    depth: int = 0
    sequence: int = 0
    outputs: int = 10

    def along(self, axis: str, value: int) -> "Size":
        """The size with one axis changed."""
        return dataclasses.replace(self, **{axis: value})

    def axes(self) -> tuple[str, ...]:
        """The axes that this model has."""
        return tuple(axis for axis in AXES if getattr(self, axis))


@dataclasses.dataclass(frozen=True)
class Workload:
    """A model family.

    Attributes:
        build: the model of a size, out of ordinary modules.
        build_private: the same where private training needs other modules than plain training.
        records: that many records for a size, on the default device.
        per_token: targets are tokens, and an example's loss is the mean over them.
        large, small: the sizes on a GPU and on a CPU.
    """

    name: str
    build: Callable[[Size], nn.Module]
    records: Callable[[Size, int], tuple[Tensor, Tensor]]
    large: Size
    small: Size
    per_token: bool = False
    build_private: Callable[[Size], nn.Module] | None = None

    def size(self, device: torch.device) -> Size:
        """The ordinary size on this kind of device."""
        return self.large if device.type == "cuda" else self.small

    def bytes_a_record(self, size: Size) -> int:
        """How much memory one record takes, found without any."""
        with torch.device("meta"):
            return sum(part.nbytes for part in self.records(size, 1))


@dataclasses.dataclass(frozen=True)
class Task:
    """One workload, ready to be measured: every contender gets the same records and equal first weights.

    The records lie on the device before any contender starts, and count for none of them. A lean task holds one batch
    of them and is worked on in one piece: it asks what fits into memory.
    """

    workload: Workload
    size: Size
    device: torch.device
    precision: str
    records: tuple[Tensor, Tensor]
    lean: bool = False

    @property
    def batch(self) -> tuple[Tensor, Tensor]:
        """A copy of the first records as one batch, for those who draw no lots themselves and have to hold one."""
        first, second = self.records
        return first[: self.size.batch].clone(), second[: self.size.batch].clone()

    def plain_model(self) -> nn.Module:
        """The model as plain training has it."""
        return self._seeded(self.workload.build)

    def private_model(self) -> nn.Module:
        """The model as private training has it."""
        return self._seeded(self.workload.build_private or self.workload.build)

    def losses(self, model: Callable[[Tensor], Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        """One loss an example; matrix products in bfloat16 where that was asked for, the loss in float32."""
        with self.autocast():
            logits = model(inputs)
        logits = logits.float()
        if self.workload.per_token:
            flat = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
            return flat.view(targets.shape).mean(dim=1)
        return F.cross_entropy(logits, targets, reduction="none")

    def autocast(self) -> AbstractContextManager[object]:
        """The precision of the forward pass."""
        if self.precision == "bfloat16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()

    def _seeded(self, build: Callable[[Size], nn.Module]) -> nn.Module:
        with _fixed_seed(self.device), torch.device(self.device):
            torch.manual_seed(_SEED)
            return build(self.size)


def make_task(
    name: str, device: torch.device, precision: str = "float32", *, size: Size | None = None, lean: bool = False
) -> Task:
    """The task of a workload's name, at its ordinary size unless told."""
    check_choice("model", name, WORKLOADS)
    check_choice("precision", precision, PRECISIONS)
    if precision == "tf32" and device.type != "cuda":
        raise InputError("precision='tf32': is for GPUs. Use float32 or bfloat16 on the CPU.")
    workload = WORKLOADS[name]
    chosen = size or workload.size(device)
    check_count("batch", chosen.batch)
    with _fixed_seed(device), torch.device(device):
        torch.manual_seed(_SEED)
        records = workload.records(chosen, chosen.batch * (1 if lean else RECORDS_A_BATCH))
    return Task(workload, chosen, device, precision, records, lean)


def _fixed_seed(device: torch.device) -> AbstractContextManager[object]:
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def _images(channels: int, pixels: int) -> Callable[[Size, int], tuple[Tensor, Tensor]]:
    def records(size: Size, count: int) -> tuple[Tensor, Tensor]:
        return torch.rand(count, channels, pixels, pixels), torch.randint(size.outputs, (count,))

    return records


def _rows(size: Size, count: int) -> tuple[Tensor, Tensor]:
    return torch.rand(count, _MLP_INPUTS), torch.randint(size.outputs, (count,))


def _table(size: Size, count: int) -> tuple[Tensor, Tensor]:
    return torch.rand(count, size.width), torch.randint(size.outputs, (count,))


def _text(size: Size, count: int) -> tuple[Tensor, Tensor]:
    text = torch.randint(size.outputs, (count, size.sequence + 1))
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def _sequences(size: Size, count: int) -> tuple[Tensor, Tensor]:
    return torch.randint(_LSTM_TOKENS, (count, size.sequence)), torch.randint(size.outputs, (count,))


def _wrn(size: Size) -> nn.Module:
    """With ordinary convolutions, which every library knows."""
    return wide_resnet((3, 32, 32), size.outputs, depth=6 * size.depth + 4, width=size.width, standardise=False)


def _gpt(size: Size) -> GPT:
    return GPT(size.outputs, size.sequence, size.width, size.depth)


def _vit(size: Size) -> nn.Module:
    image, patch = _vit_pixels(size)
    return ViT(image, patch, size.width, size.depth, size.outputs)


def _vit_images(size: Size, count: int) -> tuple[Tensor, Tensor]:
    return _images(3, _vit_pixels(size)[0])(size, count)


def _vit_pixels(size: Size) -> tuple[int, int]:
    """Side of an image and of a patch: as on ImageNet for a thousand classes, as on CIFAR-10 for ten."""
    return (224, 16) if size.outputs == _IMAGENET_CLASSES else (32, 4)


def _lstm(private: bool) -> Callable[[Size], nn.Module]:
    return lambda size: SequenceClassifier(_LSTM_TOKENS, size.width, size.depth, size.outputs, private=private)


_ALL = (
    Workload(
        "mlp",
        build=lambda size: perceptron(_MLP_INPUTS, size.width, size.depth, size.outputs),
        records=_rows,
        large=Size(4096, width=1000, depth=1),
        small=Size(2048, width=1000, depth=1),
    ),
    Workload(
        "cnn",
        build=lambda size: tanh_cnn((1, 28, 28), size.outputs),
        records=_images(1, 28),
        large=Size(4096),
        small=Size(256),
    ),
    Workload(
        "wrn",
        build=_wrn,
        records=_images(3, 32),
        large=Size(512, width=4, depth=2),
        small=Size(16, width=2, depth=2),
    ),
    Workload(
        "gpt",
        build=_gpt,
        records=_text,
        large=Size(16, width=768, depth=12, sequence=512, outputs=32_768),
        small=Size(8, width=256, depth=4, sequence=128, outputs=4_096),
        per_token=True,
    ),
    Workload(
        "gpt-2048",
        build=_gpt,
        records=_text,
        large=Size(4, width=768, depth=12, sequence=2048, outputs=32_768),
        small=Size(2, width=256, depth=4, sequence=512, outputs=4_096),
        per_token=True,
    ),
    Workload(
        "vit",
        build=_vit,
        records=_vit_images,
        large=Size(64, width=768, depth=12, outputs=_IMAGENET_CLASSES),
        small=Size(16, width=192, depth=4),
    ),
    Workload(
        "lora",
        build=lambda size: with_lora(_gpt(size)),
        records=_text,
        large=Size(16, width=768, depth=12, sequence=512, outputs=32_768),
        small=Size(8, width=256, depth=4, sequence=128, outputs=4_096),
        per_token=True,
    ),
    Workload(
        "lstm",
        build=_lstm(private=False),
        build_private=_lstm(private=True),
        records=_sequences,
        large=Size(256, width=256, depth=2, sequence=128),
        small=Size(32, width=128, depth=2, sequence=32),
    ),
    Workload(
        "logistic",
        build=lambda size: nn.Linear(size.width, size.outputs),
        records=_table,
        large=Size(4096, width=10_000, outputs=2),
        small=Size(256, width=10_000, outputs=2),
    ),
)

WORKLOADS: Mapping[str, Workload] = MappingProxyType({workload.name: workload for workload in _ALL})
"""Workloads by name."""
