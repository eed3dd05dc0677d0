r"""The whole experiment on a data set: plain and private models side by side, under the same attacks.

Records of the training split, of a large one a random part, make a pool; some of their places are given to canaries.
Every record and every canary joins every model by a fair coin of its own. N + 1 models are trained plainly and as many
in private, by the plan's own code. Each model is attacked in its turn, with the N others as its shadow models; and the
coins of the canaries of all models are guessed, which bounds epsilon from below. Beside them the plan runs once on
Dirac gradients, which its noise protects least, seen at every step.

**Why the models' coins may be counted together.** Training all models is one mechanism. A coin decides about one canary
in one model, so that two outcomes of it differ in one record of one model's data: the mechanism has the guarantee of a
single training for every coin, and the theorem for one run holds for all of them. The scores are computed from what the
models say, and never from coins, not even those of other models: a score that knew these could make many guesses right
or wrong together.

**Nothing here is published.** Plain models have no guarantee and private ones were charged to no budget; no model is
kept, and all that is found out is for the owner of the data.
"""

import copy
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from tacit import models
from tacit.auditing.arrays import FloatArray
from tacit.auditing.attacks.leave_one_out import ATTACKS, attack_each
from tacit.auditing.attacks.observations import BoolArray, Observations
from tacit.auditing.audit_settings import AuditSettings as AuditSettings
from tacit.auditing.black_box import CanaryEvidence
from tacit.auditing.canaries import Planting, plant
from tacit.auditing.findings import Attack, Claim, Finding
from tacit.auditing.lower_bounds import LowerBound
from tacit.auditing.shadows import Answers, fair_memberships, observe, train_plain, train_private
from tacit.auditing.white_box import run_on_dirac_canaries
from tacit.core.errors import InputError
from tacit.core.randomness import Randomness
from tacit.datasets import DataSet, Split
from tacit.plan import DPSGD
from tacit.training.ensemble import Fitting
from tacit.training.optimizers import make_optimizer

STAGES = ("private models", "plain models", "attacks")
Progress = Callable[[str, float], None]
"""Told what goes on, and the share of it that is done."""

_PLAIN_BATCH = 64
_DIRAC_CANARIES = 50_000
_FIRST = "lira-online-fixed"  # which counts; the others are shown beside it


@dataclasses.dataclass(frozen=True, eq=False)
class AuditResult:
    """What came out, for the owner of the data.

    Attributes:
        private, plain: what each kind of model gave away.
        white_box: what the private plan gives away to whoever sees the gradient of every step, on gradients that are as
            bad as can be. No record is looked at: it tests the code and the plan, and may be published.
        records: of the pool, canaries among them.
        trained: how private models were trained, all at once or one after another, and then why.

    The claim is tested twice, by the private models and by the white box, and either may refute it. So each bound has
    half of the chance to be wrong that the settings allow both together.
    """

    private: Finding
    plain: Finding
    white_box: LowerBound
    records: int
    trained: str

    @property
    def refuted(self) -> bool:
        """Whether either bound lies above the claim. For a true claim the chance is at most 1 - confidence."""
        return self.private.refuted or self._white_box_refutes

    @property
    def _white_box_refutes(self) -> bool:
        return self.white_box.epsilon > self.private.claim.epsilon

    def to_dict(self) -> dict[str, Any]:
        """The private models' values, with those of the plain ones under ``plain``."""
        values = self.private.to_dict()
        return {
            **values,
            "refuted": self.refuted,
            "white_box": {**self.white_box.to_dict(), "refuted": self._white_box_refutes},
            "plain": self.plain.to_dict(),
            "records": self.records,
            "private_models_trained": self.trained,
            "private": [*values["private"], "test_accuracy", "plain"],
        }


@dataclasses.dataclass(frozen=True, eq=False)
class AuditExperiment:
    """An experiment that was found possible, with its canaries made; `run` trains, attacks and bounds.

    Attributes:
        settings, plan: what is done.
        planting: the canaries. Their own coins are not used: every model has others.
        pool, test: records and canaries, and the test split, on the device to train on.
        network: the first weights of all models. They are public, as every run's are: what is the same in all models
            would only hide what differs.
        randomness: of coins, noise and sampling.
    """

    settings: AuditSettings
    plan: DPSGD
    planting: Planting
    pool: Split
    test: Split
    network: nn.Module
    randomness: Randomness

    @classmethod
    def prepare(
        cls, data: DataSet, settings: AuditSettings, randomness: Randomness, device: torch.device
    ) -> "AuditExperiment":
        """Calibrates the noise and makes the canaries; refuses what cannot be done."""
        if data.task != "classification":
            raise InputError(
                f"dataset={data.name!r}: is a regression, and the attacks read class probabilities. Train a run with "
                "--canaries M and audit that."
            )
        data = settings.drawn_from(data, randomness)
        plan = settings.plan(len(data.train))
        planting = plant(data, settings.canaries, settings.canary_kind, randomness, neighbours=plan.neighbours)[1]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            network = models.build(settings.training.model, data.input_shape, data.classes, columns=data.columns)
        pool, test = (_moved(split, device) for split in (planting.pool(data), data.test))
        return cls(settings, plan, planting, pool, test, network, randomness)

    def run(self, progress: Progress | None = None) -> AuditResult:
        """Trains all models, attacks each in its turn, and guesses the coins of all canaries."""
        tell = progress or (lambda _doing, _share: None)
        private_stage, plain_stage, attack_stage = STAGES
        coins = fair_memberships(self.settings.shadows + 1, len(self.pool), self.randomness, "audit")
        trained: list[str] = []
        private = self._train_private(coins, lambda share: tell(private_stage, share), trained.append)
        plain = self._train_plain(coins, lambda share: tell(plain_stage, share))
        found = self._finding("private", self.settings.epsilon, private, coins)
        tell(attack_stage, 0.5)
        seen_plain = self._finding("plain", math.inf, plain, coins)
        result = AuditResult(found, seen_plain, self._white_box(), len(self.pool), "; ".join(trained))
        tell(attack_stage, 1.0)
        return result

    def _white_box(self) -> LowerBound:
        seen = run_on_dirac_canaries(self.plan, _DIRAC_CANARIES, randomness=self.randomness)
        return seen.bound(self.settings.bound_confidence)

    def _build(self) -> nn.Module:
        return copy.deepcopy(self.network)

    def _train_private(
        self, coins: BoolArray, progress: Callable[[float], None], told: Callable[[str], None]
    ) -> Answers:
        training, plan = self.settings.training, self.plan
        bound = plan.clipping.bind({name: p.numel() for name, p in self.network.named_parameters()}).total
        noise_scale = plan.noise_multiplier * bound / plan.expected_batch_size

        def optimizer(model: nn.Module) -> torch.optim.Optimizer:
            return make_optimizer(
                training.optimizer, model.parameters(), training.learning_rate, noise_scale=noise_scale
            )

        return train_private(
            self._build,
            self.pool,
            coins,
            plan,
            optimizer,
            average_decay=training.average,
            randomness=self.randomness,
            progress=progress,
            told=told,
        )

    def _train_plain(self, coins: BoolArray, progress: Callable[[float], None]) -> Answers:
        steps = max(1, self.settings.plain_epochs * self.plan.examples // _PLAIN_BATCH)
        how = Fitting(steps=steps, batch_size=_PLAIN_BATCH, learning_rate=self.settings.plain_rate)
        return train_plain(self._build, self.pool, coins, how, progress=progress)

    def _finding(self, name: str, epsilon: float, answers: Answers, coins: BoolArray) -> Finding:
        claim = Claim(epsilon, self.settings.delta)
        seen = observe(answers, self.pool, coins)
        canary = np.zeros(len(self.pool), dtype=np.bool_)
        canary[self.planting.places.numpy()] = True
        people = Observations(seen.confidence[:, :, ~canary], seen.member[:, ~canary])
        names = [_FIRST, *(other for other in ATTACKS if other != _FIRST)]
        scores = unlike_the_others(seen.confidence[:, 0, canary])
        return Finding(
            name=name,
            claim=claim,
            confidence=self.settings.confidence,
            canaries=CanaryEvidence.of(
                self.planting,
                scores,
                coins[:, canary],
                delta=claim.delta,
                confidence=self.settings.bound_confidence,
            ),
            attacks=[Attack(each, attack_each(people, ATTACKS[each])) for each in names],
            by_coins=True,
            paid_for=False,
            test_accuracy=float((answers(self.test.inputs).argmax(2) == self.test.targets).double().mean()),
        )


def _moved(split: Split, device: torch.device) -> Split:
    return Split(split.inputs.to(device), split.targets.to(device))


def unlike_the_others(said: FloatArray) -> FloatArray:
    """How much surer of a canary each model is than all models are on average: ``[models, canaries]``.

    What they have in common is how hard the canary is. It is taken from what the models say alone, not from the coins.
    """
    found: FloatArray = said - said.mean(axis=0)
    return found
