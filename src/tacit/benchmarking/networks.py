"""The networks that are measured, from plain ``torch.nn`` modules that every library can hook.

Positions come from an embedding that is looked up for each example, and images are pooled by their mean: a bare
parameter that all examples share would be refused by libraries that work module by module.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.models import PrivateLSTM

_HEAD_WIDTH = 64
LORA_RANK = 8


def perceptron(inputs: int, width: int, depth: int, classes: int) -> nn.Sequential:
    """``depth`` hidden ReLU layers of ``width`` units, then an affine map to the classes."""
    layers: list[nn.Module] = []
    before = inputs
    for _ in range(depth):
        layers += [nn.Linear(before, width), nn.ReLU()]
        before = width
    return nn.Sequential(*layers, nn.Linear(before, classes))


class Attention(nn.Module):
    """Multi-head self-attention; one projection for queries, keys and values, one for the output."""

    def __init__(self, width: int, *, causal: bool) -> None:
        super().__init__()
        self.heads = max(1, width // _HEAD_WIDTH)
        self.causal = causal
        self.qkv: nn.Module = nn.Linear(width, 3 * width)
        self.out: nn.Module = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return out


class Block(nn.Module):
    """A pre-LayerNorm transformer block with a GELU perceptron four times as wide."""

    def __init__(self, width: int, *, causal: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, causal=causal)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        out: Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return out


class GPT(nn.Module):
    """A decoder with learned positions and an untied head; tokens in, logits out."""

    def __init__(self, tokens: int, length: int, width: int, depth: int) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, causal=True) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.position(_positions(tokens.shape[0], tokens.shape[1], tokens.device))
        logits: Tensor = self.head(self.norm(self.blocks(x)))
        return logits


class ViT(nn.Module):
    """A vision transformer: square patches, learned positions, mean pooling."""

    def __init__(self, image: int, patch: int, width: int, depth: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, kernel_size=patch, stride=patch)
        self.position = nn.Embedding((image // patch) ** 2, width)
        self.blocks = nn.Sequential(*(Block(width, causal=False) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = x + self.position(_positions(x.shape[0], x.shape[1], x.device))
        logits: Tensor = self.head(self.norm(self.blocks(x)).mean(dim=1))
        return logits


class LoraLinear(nn.Module):
    """A frozen affine map plus a trained one of low rank (Hu et al., LoRA, 2021)."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, LORA_RANK, bias=False)
        self.up = nn.Linear(LORA_RANK, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + self.up(self.down(x))
        return out


def with_lora(model: GPT) -> GPT:
    """The model with adapters on its attention projections; nothing else trains."""
    model.requires_grad_(False)
    for attention in (module for module in model.modules() if isinstance(module, Attention)):
        for name in ("qkv", "out"):
            base = getattr(attention, name)
            setattr(attention, name, LoraLinear(base))
    return model


class SequenceClassifier(nn.Module):
    """Token embedding, LSTM layers, and an affine map of the last hidden state."""

    def __init__(self, tokens: int, width: int, depth: int, classes: int, *, private: bool) -> None:
        super().__init__()
        kind = PrivateLSTM if private else nn.LSTM
        self.embedding = nn.Embedding(tokens, width)
        self.lstm: nn.Module = kind(width, width, num_layers=depth, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(tokens))
        logits: Tensor = self.head(states[:, -1])
        return logits


def _positions(batch: int, length: int, device: torch.device) -> Tensor:
    """Each example has its own: Opacus's ghost clipping refuses an expanded view, whose rows are one row of memory."""
    return torch.arange(length, device=device).expand(batch, length).contiguous()
