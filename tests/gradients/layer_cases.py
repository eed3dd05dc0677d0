"""Every layer that the engines claim, as small models: name to (model, batch). Not a test file itself."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tacit import models
from tacit.models.wide_resnet import StandardisedConv2d

EXAMPLES = 5


@dataclasses.dataclass(frozen=True)
class Case:
    build: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Any, ...]]
    engines: tuple[str, ...] = ("functional", "bookkeeping")


def squared_outputs(model: nn.Module, *inputs: Any) -> Tensor:
    """A loss for any model: a weighted sum of squares of all its outputs, one an example."""
    output = model(*inputs)
    rows = output.flatten(1)
    weights = torch.linspace(0.5, 1.5, rows.shape[1], dtype=rows.dtype)
    return (rows.square() * weights).sum(1) + rows.sum(1)


def images(*shape: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (torch.randn(EXAMPLES, *shape, dtype=torch.float64),)


def tokens(length: int, vocabulary: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (torch.randint(0, vocabulary, (EXAMPLES, length)),)


def sequential(*layers: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(*(layer() for layer in layers))


class Attention(nn.Module):
    """Self- or cross-attention, in either layout, with or without masks."""

    def __init__(self, *, cross: bool, batch_first: bool, masked: bool, weights: bool, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=batch_first, **options)
        self.cross, self.batch_first, self.masked, self.weights = cross, batch_first, masked, weights

    def forward(self, x: Tensor) -> Tensor:
        memory = x.flip(1)[:, :3].contiguous() * 0.5 if self.cross else x
        padding = mask = None
        if self.masked:
            padding = torch.zeros(x.shape[0], memory.shape[1], dtype=torch.bool)
            padding[:, -1] = True
            mask = torch.zeros(x.shape[1], memory.shape[1], dtype=torch.bool)
            mask[0, 1] = True
        if not self.batch_first:
            x, memory = x.transpose(0, 1), memory if memory is x else memory.transpose(0, 1)
            memory = memory if self.cross else x
        out, _ = self.attention(x, memory, memory, key_padding_mask=padding, attn_mask=mask, need_weights=self.weights)
        return out if self.batch_first else out.transpose(0, 1)


class Recurrent(nn.Module):
    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        self.rnn = getattr(models, kind)(3, 4, **options)
        self.batch_first = options.get("batch_first", False)

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.rnn(x if self.batch_first else x.transpose(0, 1))
        return out if self.batch_first else out.transpose(0, 1)


class TiedLanguageModel(nn.Module):
    """Embedding and output layer share one table; positions are shared by all examples."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.positions = nn.Embedding(7, 6)
        self.mix = nn.Linear(6, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1])[None]
        hidden = torch.tanh(self.mix(self.embed(ids) + self.positions(places)))
        return self.head(hidden)


class Repeated(nn.Module):
    """One linear layer, used three times, once with its transpose."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.layer(x))
        return torch.tanh(self.layer(x)) @ self.layer.weight.t()


class RawParameters(nn.Module):
    """A class token, learned positions, a layer scale and an offset, all as bare parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 4))
        self.places = nn.Parameter(torch.randn(1, 4, 4))
        self.scale = nn.Parameter(torch.randn(4))
        self.offset = nn.Parameter(torch.randn(4))
        self.matrix = nn.Parameter(torch.randn(4, 3))
        self.flat_bias = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        x = self.scale * torch.tanh(x) - self.offset
        x = torch.where(x > 0, x, self.offset)
        flat = torch.addmm(self.flat_bias, x.reshape(-1, 4), self.matrix, beta=0.5, alpha=2.0)
        return flat.view(x.shape[0], -1)


class RelativePositions(nn.Module):
    """A table looked up with constants, whose result is added to every example: a derived parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 2)
        self.query = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        q = self.query(x).unflatten(-1, (2, 2)).transpose(1, 2)
        buckets = (torch.arange(x.shape[1])[None] - torch.arange(x.shape[1])[:, None]).clamp(-2, 2) + 2
        bias = self.table(buckets).permute(2, 0, 1).unsqueeze(0)
        return torch.softmax(q @ q.transpose(2, 3) + bias, -1) @ q


class InPlace(nn.Module):
    """Writes over layer outputs, as in-place activations and residual connections do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        torch.relu_(x)
        y = self.second(x)
        y += x
        return y.mul_(2.0)


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)


class Frozen(nn.Module):
    """A frozen weight with a training bias, a training weight with a frozen bias, and frozen layers between."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.norm = nn.LayerNorm(5)
        self.a.weight.requires_grad_(False)
        self.b.bias.requires_grad_(False)
        self.norm.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.norm(torch.tanh(self.b(torch.tanh(self.a(x))))))


class Broadcast(nn.Module):
    """Position numbers come in with the batch, as one row for all examples."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.mix = nn.Embedding(6, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        return self.mix(torch.tanh(x + self.places(places)))


class Frames(nn.Module):
    """A layer that sees every frame of every film as one row of its batch."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x.flatten(0, 1))).unflatten(0, x.shape[:2])


def frames(layer: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: Frames(layer())


def _bag(mode: str, **options: Any) -> Callable[[], nn.Module]:
    return lambda: nn.EmbeddingBag(7, 4, mode=mode, **options)


def _convolution(rank: int, *, kernel: Any = 3, **options: Any) -> Callable[[], nn.Module]:
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
    return lambda: kind(4, 6, kernel, **options)


CASES: dict[str, Case] = {
    "linear-2d": Case(sequential(lambda: nn.Linear(6, 4), nn.Tanh, lambda: nn.Linear(4, 3)), images(6)),
    "linear-3d": Case(sequential(lambda: nn.Linear(6, 4), nn.Tanh, lambda: nn.Linear(4, 3)), images(7, 6)),
    "linear-4d": Case(sequential(lambda: nn.Linear(6, 4), nn.Tanh, lambda: nn.Linear(4, 3)), images(3, 2, 6)),
    "linear-no-bias": Case(lambda: nn.Linear(6, 4, bias=False), images(2, 6)),
    "linear-wide": Case(sequential(lambda: nn.Linear(40, 30), nn.Tanh, lambda: nn.Linear(30, 3)), images(3, 40)),
    "linear-batch-second": Case(lambda: _Transposed(nn.Linear(6, 4)), images(EXAMPLES, 6)),
    "conv1d": Case(_convolution(1), images(4, 9)),
    "conv1d-stride-dilation": Case(_convolution(1, stride=2, padding=3, dilation=2), images(4, 9)),
    "conv2d": Case(sequential(_convolution(2), nn.Tanh, lambda: nn.Conv2d(6, 2, 2)), images(4, 7, 6)),
    "conv2d-uneven": Case(
        _convolution(2, kernel=(3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2)), images(4, 7, 6)
    ),
    "conv2d-groups": Case(_convolution(2, groups=2, padding=1), images(4, 5, 5)),
    "conv2d-depthwise": Case(lambda: nn.Conv2d(4, 8, 3, groups=4), images(4, 5, 5)),
    "conv2d-same": Case(_convolution(2, kernel=(4, 3), padding="same", dilation=(1, 2)), images(4, 6, 7)),
    "conv2d-valid": Case(_convolution(2, padding="valid", bias=False), images(4, 5, 5)),
    **{
        f"conv2d-{mode}": Case(_convolution(2, padding=(2, 1), padding_mode=mode), images(4, 6, 5))
        for mode in ("reflect", "replicate", "circular")
    },
    "conv1d-circular": Case(_convolution(1, padding=2, padding_mode="circular"), images(4, 7)),
    "conv3d": Case(_convolution(3, stride=(1, 2, 1), padding=1), images(4, 4, 5, 4)),
    "conv3d-groups-dilation": Case(_convolution(3, groups=2, dilation=(1, 2, 1)), images(4, 4, 6, 4)),
    "embedding": Case(sequential(lambda: nn.Embedding(7, 4), nn.Tanh, lambda: nn.Linear(4, 2)), tokens(6, 7)),
    "embedding-one-token": Case(lambda: nn.Embedding(40, 4), lambda: (torch.randint(0, 40, (EXAMPLES,)),)),
    "embedding-padding": Case(lambda: nn.Embedding(4, 3, padding_idx=1), tokens(6, 4)),
    "embedding-large-table": Case(
        sequential(lambda: nn.Embedding(90, 4), nn.Tanh, lambda: nn.Linear(4, 2)), tokens(6, 90)
    ),
    **{f"bag-{mode}": Case(_bag(mode), tokens(6, 7), ("bookkeeping",)) for mode in ("sum", "mean", "max")},
    "bag-padding": Case(_bag("mean", padding_idx=2), tokens(6, 7), ("bookkeeping",)),
    "bag-weighted": Case(
        lambda: _WeightedBag(),
        lambda: (torch.randint(0, 7, (EXAMPLES, 6)), torch.rand(EXAMPLES, 6, dtype=torch.float64)),
        ("bookkeeping",),
    ),
    "layer-norm": Case(sequential(lambda: nn.LayerNorm(6), lambda: nn.Linear(6, 3)), images(6)),
    "layer-norm-tokens": Case(lambda: nn.LayerNorm((4, 6)), images(3, 4, 6)),
    "layer-norm-no-bias": Case(lambda: nn.LayerNorm(6, bias=False), images(4, 6)),
    "rms-norm": Case(sequential(lambda: nn.RMSNorm(6), nn.Tanh, lambda: nn.RMSNorm((4, 6))), images(4, 6)),
    "group-norm": Case(sequential(lambda: nn.GroupNorm(2, 4), lambda: nn.Conv2d(4, 3, 2)), images(4, 4, 4)),
    "group-norm-flat": Case(lambda: nn.GroupNorm(2, 4), images(4)),
    "instance-norm-1d": Case(lambda: nn.InstanceNorm1d(3, affine=True), images(3, 6)),
    "instance-norm-2d": Case(lambda: nn.InstanceNorm2d(3, affine=True), images(3, 4, 5)),
    "instance-norm-3d": Case(lambda: nn.InstanceNorm3d(3, affine=True), images(3, 2, 4, 3)),
    "batch-norm-frozen": Case(
        lambda: nn.Sequential(nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4).eval(), nn.Conv2d(4, 2, 2)), images(3, 4, 4)
    ),
    "attention-self": Case(
        lambda: Attention(cross=False, batch_first=True, masked=False, weights=True), images(EXAMPLES, 8)
    ),
    "attention-batch-second": Case(
        lambda: Attention(cross=False, batch_first=False, masked=False, weights=False), images(EXAMPLES, 8)
    ),
    "attention-masked": Case(
        lambda: Attention(cross=False, batch_first=True, masked=True, weights=False), images(4, 8)
    ),
    "attention-cross": Case(lambda: Attention(cross=True, batch_first=False, masked=True, weights=True), images(4, 8)),
    "attention-biases": Case(
        lambda: Attention(
            cross=False, batch_first=True, masked=True, weights=True, add_bias_kv=True, add_zero_attn=True
        ),
        images(4, 8),
        ("bookkeeping",),
    ),
    "attention-separate": Case(
        lambda: Attention(cross=True, batch_first=True, masked=False, weights=False, kdim=8, vdim=8), images(4, 8)
    ),
    "attention-sizes": Case(lambda: _OtherSizes(), images(4, 8)),
    "transformer-layer": Case(
        lambda: nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True), images(4, 8)
    ),
    "rnn": Case(lambda: Recurrent("PrivateRNN"), images(6, 3)),
    "lstm": Case(lambda: Recurrent("PrivateLSTM", num_layers=2, batch_first=True), images(6, 3)),
    "lstm-bidirectional": Case(lambda: Recurrent("PrivateLSTM", bidirectional=True), images(4, 3)),
    "gru": Case(lambda: Recurrent("PrivateGRU", batch_first=True), images(6, 3)),
    "frames-lstm": Case(frames(lambda: Recurrent("PrivateLSTM", batch_first=True)), images(2, 5, 3)),
    "frames-linear": Case(frames(lambda: nn.Linear(4, 3)), images(2, 4)),
    "frames-conv2d": Case(frames(_convolution(2, groups=2)), images(6, 4, 4, 4)),  # as many frames as channels
    "frames-conv1d": Case(frames(_convolution(1, stride=2)), images(2, 4, 7)),
    "frames-group-norm": Case(frames(lambda: nn.GroupNorm(2, 4)), images(4, 4, 3)),
    "frames-instance-norm": Case(frames(lambda: nn.InstanceNorm1d(3, affine=True)), images(3, 3, 4)),
    "frames-batch-norm-frozen": Case(frames(lambda: nn.BatchNorm1d(3).eval()), images(2, 3)),
    "frames-layer-norm": Case(frames(lambda: nn.LayerNorm(4)), images(2, 3, 4)),
    "frames-embedding": Case(
        frames(lambda: nn.Embedding(7, 4)), lambda: (torch.randint(0, 7, (EXAMPLES, 2, 3)),), ("bookkeeping",)
    ),
    **{
        f"frames-bag-{mode}": Case(
            frames(_bag(mode, padding_idx=2)), lambda: (torch.randint(0, 7, (EXAMPLES, 3, 4)),), ("bookkeeping",)
        )
        for mode in ("sum", "mean", "max")
    },
    "tied": Case(TiedLanguageModel, tokens(5, 11)),
    "tied-long": Case(TiedLanguageModel, tokens(7, 11)),
    "repeated": Case(Repeated, images(4)),
    "raw-parameters": Case(RawParameters, images(3, 4)),
    "relative-positions": Case(RelativePositions, images(EXAMPLES, 3)),
    "in-place": Case(InPlace, images(4)),
    "unused": Case(Unused, images(4)),
    "frozen": Case(Frozen, images(4)),
    "broadcast": Case(Broadcast, lambda: (torch.randn(EXAMPLES, 6, 4, dtype=torch.float64), torch.arange(6)[None])),
    "weight-norm": Case(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), images(4)),
    "spectral-norm": Case(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)).eval(), images(4)),
    "weight-standardised": Case(
        sequential(lambda: StandardisedConv2d(2, 3, 3), nn.Tanh, lambda: StandardisedConv2d(3, 2, 3, stride=2)),
        images(2, 6, 6),
    ),
}


class _Transposed(nn.Module):
    """The examples are in the second dimension, and there are as many tokens as examples."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x.transpose(0, 1))).transpose(0, 1)


class _WeightedBag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(7, 4, mode="sum")

    def forward(self, ids: Tensor, weights: Tensor) -> Tensor:
        return self.bag(ids, per_sample_weights=weights)


class _OtherSizes(nn.Module):
    """Keys and values of other sizes than the queries: three separate projection weights."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, kdim=3, vdim=5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.attention(x, x[..., :3], x[..., 3:])[0]
        return out
