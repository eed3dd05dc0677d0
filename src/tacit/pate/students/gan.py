"""A student that learns against a generator of false inputs, as in the paper on PATE."""

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.core.validation import check_count, check_open_unit, check_positive
from tacit.datasets import Split
from tacit.pate.learned_features import last_features
from tacit.pate.students.student import Lesson, Progress, batch_of, slightly_changed
from tacit.training.averaging import WeightAverage


@dataclasses.dataclass(frozen=True)
class GAN:
    r"""Learns to tell the classes apart, and all of them from what a generator makes up (PATE-G).

    With :math:`Z(x) = \sum_k e^{\ell_k(x)}` over the K outputs, the student takes an input for a true one with
    probability :math:`D(x) = Z(x) / (Z(x) + 1)`: false inputs are a class of their own whose output is always 0. It
    minimises

    .. math::
        \frac1B \sum_b H(y_b, p(x_b)) - \frac\lambda{2B} \sum_u \log D(u) - \frac\lambda{2B} \sum_z \log(1 - D(G(z)))

    over answered inputs, public inputs without an answer and false ones in equal number. The generator G minimises
    :math:`\|E_u f(u) - E_z f(G(z))\|^2` for the features f that enter the student's last linear layer. What is kept
    is the moving average of the student's weights; the generator is thrown away.

    The generator is a fully connected network, and its outputs lie within the bounds of the public inputs, number by
    number. That suits vectors and small grey images.

    Attributes:
        steps: of Adam for student and generator each, its rate falling to zero by a cosine.
        batch_size: B.
        weight: :math:`\lambda`.
        learning_rate: at the start.
        average: decay of the average.
        hidden: width of the generator's two hidden layers.
        code: how many random numbers an input is made of.

    References: Salimans et al., Improved Techniques for Training GANs, 2016; Papernot, Abadi, Erlingsson, Goodfellow,
    Talwar, Semi-supervised Knowledge Transfer for Deep Learning from Private Training Data, 2017.
    """

    steps: int = 1500
    batch_size: int = 64
    weight: float = 1.0
    learning_rate: float = 1e-3
    average: float = 0.995
    hidden: int = 256
    code: int = 64

    def __post_init__(self) -> None:
        for name in ("steps", "hidden", "code"):
            check_count(name, getattr(self, name))
        check_count("batch_size", self.batch_size, minimum=2, remedy="The generator normalises over the batch.")
        check_positive("weight", self.weight)
        check_positive("learning_rate", self.learning_rate)
        check_open_unit("average", self.average)

    @property
    def name(self) -> str:
        """The name on the command line."""
        return "gan"

    def teach(self, model: nn.Module, lesson: Lesson, *, seed: int, progress: Progress) -> None:
        """Trains the model, in place."""
        game = _Game(self, model, lesson.answered, lesson.inputs, seed)
        average = WeightAverage(model, self.average)
        model.train()
        for step in range(self.steps):
            game.step()
            average.update(model)
            progress((step + 1) / self.steps)
        average.copy_to(model)
        model.eval()


def true_or_false_loss(true: Tensor, false: Tensor) -> Tensor:
    r"""Half the mean of :math:`-\log D(x)` on true inputs plus half that of :math:`-\log(1 - D(x))` on false ones.

    Both follow from :math:`\log D = \log Z - \log(1 + Z)` with :math:`\log Z` the logsumexp of the outputs, without
    overflow.

    Args:
        true, false: the student's outputs, ``[inputs, classes]``.
    """
    return 0.5 * (F.softplus(-true.logsumexp(1)).mean() + F.softplus(false.logsumexp(1)).mean())


class _Game:
    """Student and generator, each with its optimizer."""

    def __init__(self, how: GAN, model: nn.Module, answered: Split, unlabelled: Tensor, seed: int) -> None:
        self._how, self._model, self._answered, self._unlabelled = how, model, answered, unlabelled
        self._random = torch.Generator(device=unlabelled.device).manual_seed(seed)
        self._generator = _generator(unlabelled, how, seed)
        self._optimizers = [
            torch.optim.Adam(each.parameters(), lr=how.learning_rate, betas=(0.5, 0.999))
            for each in (model, self._generator)
        ]
        self._schedules = [
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, how.steps) for optimizer in self._optimizers
        ]

    def step(self) -> None:
        """One step of the student, then one of the generator against the student as it is now."""
        self._update(0, self._student_loss())
        self._update(1, self._generator_loss())

    def _student_loss(self) -> Tensor:
        inputs, labels = self._answered[self._rows(len(self._answered))]
        with torch.no_grad():
            false = self._false()
        batch = [slightly_changed(inputs, self._random), self._true(), false]
        known, true, made_up = self._model(torch.cat(batch)).split(self._how.batch_size)
        return F.cross_entropy(known, labels) + self._how.weight * true_or_false_loss(true, made_up)

    def _generator_loss(self) -> Tensor:
        with torch.no_grad():
            wanted = last_features(self._model, self._true()).mean(0)
        return F.mse_loss(last_features(self._model, self._false()).mean(0), wanted)

    def _update(self, player: int, loss: Tensor) -> None:
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizers[player].step()
        self._schedules[player].step()

    def _true(self) -> Tensor:
        return slightly_changed(self._unlabelled[self._rows(len(self._unlabelled))], self._random)

    def _false(self) -> Tensor:
        device = self._unlabelled.device
        codes = torch.randn(self._how.batch_size, self._how.code, generator=self._random, device=device)
        made_up: Tensor = self._generator(codes)
        return made_up

    def _rows(self, count: int) -> Tensor:
        return batch_of(count, self._how.batch_size, self._random, self._unlabelled.device)


class _Within(nn.Module):
    """Any numbers, squeezed between two bounds."""

    low: Tensor
    width: Tensor

    def __init__(self, low: Tensor, high: Tensor) -> None:
        super().__init__()
        self.register_buffer("low", low)
        self.register_buffer("width", high - low)

    def forward(self, numbers: Tensor) -> Tensor:
        return self.low + self.width * numbers.view(-1, *self.low.shape).sigmoid()


def _generator(like: Tensor, how: GAN, seed: int) -> nn.Module:
    """A network from random codes to inputs such as these."""
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for before in (how.code, how.hidden):
            layers += [nn.Linear(before, how.hidden), nn.BatchNorm1d(how.hidden), nn.ReLU()]
        layers.append(nn.Linear(how.hidden, like[0].numel()))
    return nn.Sequential(*layers, _Within(*like.aminmax(dim=0))).to(like.device)
