"""Priors from noise: a wide residual network that has seen random processes and nothing else."""

import dataclasses
import time
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from tacit.core.errors import InputError
from tacit.core.validation import check_choice
from tacit.datasets.random_processes import RandomProcess, default_mixture
from tacit.models.wide_resnet import Order, WideResNet, wide_resnet
from tacit.training.pretraining import Pretraining, Progress, pretrain
from tacit.training.public_record import NOBODYS, read_public_record
from tacit.training.run_folder import RunFolder, hardware, now, versions

_KIND = "noise-prior"
_CLAIMS = {"kind": _KIND, **dict.fromkeys(("backbone", "process", "learn", "training", "seconds"))}


@dataclasses.dataclass(frozen=True)
class Backbone:
    """The wide residual network of a prior; `build` makes one with weights that the seed decides."""

    depth: int = 16
    width: int = 4
    standardise: bool = True
    shortcut: Order = "norm-relu-conv"
    classes: int = 10
    side: int = 32

    def build(self, seed: int) -> WideResNet:
        """A network for colour images of ``side`` pixels, with pixels centred; torch's own seed is left as it is."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return wide_resnet(
                (3, self.side, self.side),
                self.classes,
                depth=self.depth,
                width=self.width,
                standardise=self.standardise,
                shortcut=self.shortcut,
                centre=True,
            )


@dataclasses.dataclass(frozen=True)
class NoisePrior:
    """Everything that decides a prior's weights.

    Attributes:
        backbone: the network.
        process: the random images; twice the network's side by default, so that views that show a part of an image
            have detail of their own.
        learn: ``maps`` projects the last maps with all their positions, as Tang et al. do, ``features`` their mean.
        training: the contrastive training.
    """

    backbone: Backbone = dataclasses.field(default_factory=Backbone)
    process: RandomProcess = dataclasses.field(default_factory=lambda: default_mixture(64))
    learn: Literal["maps", "features"] = "maps"
    training: Pretraining = dataclasses.field(default_factory=Pretraining)

    def __post_init__(self) -> None:
        check_choice("learn", self.learn, ("maps", "features"))
        if self.training.view.size != self.backbone.side:
            raise InputError(
                f"view={self.training.view.size} pixels: must be {self.backbone.side}, the backbone's side."
            )


def pretrain_on_noise(
    config: NoisePrior | None = None,
    *,
    device: torch.device | str | None = None,
    out: Path | None = None,
    progress: Progress | None = None,
) -> WideResNet:
    """A network trained on random images alone: phase one of DP-RandP.

    No data set is opened: the result is public, whatever it is used on later, and needs no event in any account. Its
    head is untrained: train it, or `WideResNet.readout`, or everything, in private from here.

    Args:
        config: the defaults of `NoisePrior` where it is missing.
        device: a GPU where there is one.
        out: a new folder for ``model.safetensors`` and ``run.json``, which `load_prior` reads.
        progress: called after every step.

    Reference: Tang, Panda, Sehwag and Mittal, Differentially Private Image Classification by Learning Priors from
    Random Processes, 2023.
    """
    config = config or NoisePrior()
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    folder = None if out is None else RunFolder.create(out, _KIND)
    model = config.backbone.build(config.training.seed).to(device)
    embedding = WideResNet.maps if config.learn == "maps" else WideResNet.features
    started = time.perf_counter()
    losses = pretrain(
        model, embedding, config.process, config.training, compile=device.type == "cuda", progress=progress
    )
    if folder is not None:
        folder.save_model(model)
        folder.write_run(_record(config, losses[-1], time.perf_counter() - started, device))
    return model


def load_prior(path: Path) -> WideResNet:
    """The network that `pretrain_on_noise` saved in the folder ``path``, on the CPU.

    Weights whose record does not say what they were trained on, and that it was nobody's data, are refused: a run that
    begins from them counts them as public.
    """
    record = prior_facts(path)
    try:
        model = Backbone(**record["backbone"]).build(0)
        model.load_state_dict(load_file(path / "model.safetensors"))
    except (OSError, ValueError, TypeError, RuntimeError, SafetensorError) as error:
        raise InputError(
            f"path={str(path)!r}: must be a folder that pretrain_on_noise wrote ({type(error).__name__}: {error}). "
            "Run it with out=."
        ) from error
    return model


def prior_facts(path: Path) -> dict[str, Any]:
    """Where the prior in this folder came from: what `pretrain_on_noise` wrote about it, and the weights' digest."""
    return read_public_record(path, _CLAIMS)


def _record(config: NoisePrior, loss: float, seconds: float, device: torch.device) -> dict[str, Any]:
    return {
        "kind": _KIND,
        "created": now(),
        "backbone": dataclasses.asdict(config.backbone),
        "process": repr(config.process),
        "learn": config.learn,
        "training": dataclasses.asdict(config.training),
        "loss": loss,
        "seconds": seconds,
        "hardware": hardware(device),
        "versions": versions(),
        "private_data": NOBODYS,
    }
