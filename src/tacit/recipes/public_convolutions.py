"""Convolutions that were learned from CIFAR-100 as public data: plainly and once, then kept in the cache.

No record that a guarantee speaks of is read here, so that the weights depend on none of them: nothing is spent, there
is no event for an accountant, and a private run may begin from them as from any other public start. That holds as long
as CIFAR-100 is public to whoever is protected, which nothing here can see.
"""

import dataclasses
import hashlib
import time
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from tacit.core.errors import InputError
from tacit.core.plain import to_json
from tacit.core.validation import check_count
from tacit.datasets import Split, describe, load, locate_or_fetch
from tacit.datasets.features import Report
from tacit.datasets.locating import cache_folder
from tacit.recipes.cropped_network import convolutions, crop_and_flip, network
from tacit.recipes.plain import train_plainly
from tacit.training.evaluation import classification_loss, evaluate
from tacit.training.optimizers import schedule_factor
from tacit.training.public_record import NOBODYS, read_public_record
from tacit.training.run_folder import RunFolder, hardware, now, versions

DATASET = "cifar100"
_KIND = "public-convolutions"
_COLOURS = 3
_MOMENTUM = 0.9
_REPORTS = 100  # on the way


@dataclasses.dataclass(frozen=True)
class PublicConvolutions:
    """Everything that decides the weights.

    Attributes:
        channels, hidden: of the network; its dense layers are thrown away.
        steps: of stochastic gradient descent with momentum 0.9, whose rate falls to zero as a cosine.
        batch_size: images in a step, cropped and mirrored at random.
        learning_rate, weight_decay: of the update.
        seed: of the first weights and of the batches.
    """

    channels: int = 64
    hidden: int = 384
    steps: int = 12_000
    batch_size: int = 128
    learning_rate: float = 0.02
    weight_decay: float = 5e-4
    seed: int = 0

    def __post_init__(self) -> None:
        for name, knob in (("channels", "channels"), ("hidden", "hidden"), ("steps", "public_steps")):
            check_count(knob, getattr(self, name))

    @property
    def folder(self) -> Path:
        """Where they are kept: one for each settings and data, so that all seeds and epsilons share it."""
        decides = {"dataset": describe(DATASET).sha256, **dataclasses.asdict(self)}
        return cache_folder() / _KIND / hashlib.sha256(to_json(decides).encode()).hexdigest()[:16]

    @property
    def kept(self) -> bool:
        """Whether they were made before."""
        return (self.folder / "run.json").is_file()

    def check(self) -> None:
        """Refuses where they are neither kept nor can be made: no data are fetched for it, and nothing is trained."""
        if self.kept:
            return
        try:
            locate_or_fetch(DATASET, download=False)
        except InputError as error:
            raise InputError(
                f"start={DATASET!r}: learns its convolutions from CIFAR-100, which must be on this machine. {error} "
                f"Where a download is allowed, tacit data get {DATASET} places it; start=random does without."
            ) from error

    def make(self, device: torch.device, report: Report) -> None:
        """Makes and keeps them on a device, unless they are kept; what others draw on the CPU is not moved by it."""
        if self.kept:
            return
        data = load(DATASET, download=False)
        folder = RunFolder.create(self.folder, _KIND)
        with folder.dropped_if_empty():
            started = time.perf_counter()
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                model = network(_COLOURS, self.channels, self.hidden, data.classes).to(device)
            self._train(model, Split(data.train.inputs.to(device), data.train.targets.to(device)), report)
            seconds, accuracy = time.perf_counter() - started, evaluate(model, data.test, data.task)
            folder.save_model(convolutions(model))
            folder.write_run(self._record(accuracy, seconds, device))

    def load_into(self, model: nn.Sequential) -> nn.Sequential:
        """The model with these convolutions, which train no more; its dense layers stay as they are."""
        if not self.kept:
            self.make(torch.device("cuda" if torch.cuda.is_available() else "cpu"), lambda *_: None)
        self.record()  # refuses what is not known to be public
        part = convolutions(model)
        try:
            part.load_state_dict(load_file(self.folder / "model.safetensors"))
        except (OSError, RuntimeError, SafetensorError) as error:
            raise self._broken(error) from error
        part.requires_grad_(False)
        return model

    def settings(self) -> dict[str, Any]:
        """All that decides them but the data."""
        return dataclasses.asdict(self)

    def record(self) -> dict[str, Any]:
        """Where they come from, as plain JSON values; the digest of the weights tells whether two runs shared them."""
        return read_public_record(self.folder, self._claims())

    def _claims(self) -> dict[str, Any]:
        return {
            "kind": _KIND,
            "dataset": DATASET,
            "dataset_sha256": describe(DATASET).sha256,
            "training": self.settings(),
        }

    def _train(self, model: nn.Sequential, train: Split, report: Report) -> None:
        augment = crop_and_flip(torch.Generator(train.inputs.device).manual_seed(self.seed))
        optimizer = torch.optim.SGD(
            model.parameters(), self.learning_rate, momentum=_MOMENTUM, weight_decay=self.weight_decay
        )

        def loss_fn(model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
            return classification_loss(model, *augment(images, targets))

        def tell(step: int, _: nn.Module) -> None:
            if step % max(1, self.steps // _REPORTS) == 0:
                report(step, self.steps)

        train_plainly(
            model,
            loss_fn,
            train,
            batch_size=self.batch_size,
            steps=self.steps,
            optimizer=optimizer,
            seed=self.seed,
            scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, schedule_factor("cosine", self.steps)),
            callbacks=[tell],
        )

    def _record(self, accuracy: float, seconds: float, device: torch.device) -> dict[str, Any]:
        return {
            **self._claims(),
            "created": now(),
            "accuracy": accuracy,
            "seconds": seconds,
            "hardware": hardware(device),
            "versions": versions(),
            "private_data": NOBODYS,
        }

    def _broken(self, error: Exception) -> InputError:
        return InputError(
            f"{self.folder}: holds no convolutions of these settings ({type(error).__name__}: {error}). Delete the "
            "folder, and they are made again."
        )
