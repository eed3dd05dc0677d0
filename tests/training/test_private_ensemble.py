"""Private models trained at once: each is what `tacit.fit` makes of it, with lots, clipping and noise of its own."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import tacit
from tacit.core.errors import UnsupportedError
from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.datasets import Split
from tacit.gradients.stacked import StackedGrad
from tacit.training.ensemble import seeded
from tacit.training.evaluation import classification_loss
from tacit.training.execution import Execution
from tacit.training.private_ensemble import PrivateEnsemble

MODELS, RECORDS, INPUTS, CLASSES, BATCH = 3, 60, 6, 3, 12


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.Tanh(), nn.Linear(8, CLASSES))


def momentum(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)


@pytest.fixture(scope="module")
def records() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(RECORDS, INPUTS, generator=generator)
    return inputs, torch.randint(0, CLASSES, (RECORDS,), generator=generator)


def parts() -> list[np.ndarray]:
    """Of different sizes, the last one so small that some lots are empty."""
    chosen = np.random.default_rng(1)
    return [np.sort(chosen.choice(RECORDS, size=size, replace=False)) for size in (40, 25, 3)]


def sources(seed: int | None = 7) -> list[Randomness]:
    return [Randomness() if seed is None else Randomness(unsafe_seed=seed + number) for number in range(MODELS)]


def plan(**changes) -> tacit.DPSGD:
    usual = {
        "expected_batch_size": BATCH,
        "examples": RECORDS // 2,
        "steps": 8,
        "clipping": tacit.clipping.Flat(0.5),
        "noise_multiplier": 0.7,
        "delta": 1e-4,
    }
    return tacit.DPSGD(**{**usual, **changes})


def together(records, chosen, made=build, *, own=None, optimizer=momentum, **options) -> list[nn.Module]:
    models = [seeded(made, number) for number in range(MODELS)]
    optimizers = [optimizer(model) for model in models]
    fitted = options.pop("parts", parts())
    ensemble = PrivateEnsemble(
        models, classification_loss, records, fitted, chosen, optimizers, own or sources(), **options
    )
    ensemble.fit(lambda _share: None)
    return models


def alone(records, chosen, made=build, *, optimizer=momentum, average_decay=None) -> list[nn.Module]:
    """The slow oracle: one example at a time, one model after another."""
    models = []
    for number, (rows, own) in enumerate(zip(parts(), sources(), strict=True)):
        model = seeded(made, number)
        tacit.fit(
            model,
            classification_loss,
            Split(*(tensor[rows] for tensor in records)),
            chosen,
            optimizer=optimizer(model),
            average_decay=average_decay,
            randomness=own,
            execution=Execution(engine="reference", compile=False),
        )
        models.append(model)
    return models


def assert_same(found: list[nn.Module], expected: list[nn.Module]) -> None:
    for one, other in zip(found, expected, strict=True):
        for (name, value), wanted in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
            torch.testing.assert_close(value, wanted, rtol=2e-3, atol=2e-5, msg=lambda text, n=name: f"{n}: {text}")


class Scaled(nn.Module):
    """Buffers, a parameter that does not train, one that is never used, and several tokens an example."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.rand(INPUTS) + 0.5)
        self.frozen = nn.Parameter(torch.randn(INPUTS), requires_grad=False)
        self.idle = nn.Linear(2, 2)
        self.norm = nn.LayerNorm(2)
        self.tokens, self.last = nn.Linear(2, 5), nn.Linear(5, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        tokens = (inputs * self.scale + self.frozen).reshape(-1, INPUTS // 2, 2)
        return self.last(torch.relu(self.tokens(self.norm(tokens))).mean(1))


@pytest.mark.parametrize(
    ("made", "clipping"),
    [
        (build, tacit.clipping.Flat(0.5)),
        (build, tacit.clipping.PerLayer(0.5)),
        (build, tacit.clipping.Automatic(0.5)),
        (Scaled, tacit.clipping.Flat(0.5)),
        (Scaled, tacit.clipping.Tanh(0.1, 1.0, bound=0.5)),
    ],
)
def test_each_model_is_what_fit_makes_of_it(records, made, clipping):
    chosen = plan(clipping=clipping)
    assert_same(together(records, chosen, made), alone(records, chosen, made))


def test_with_averaged_weights_and_an_optimizer_with_moments(records):
    def adam(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=0.01, eps=1e-3)

    assert_same(
        together(records, plan(), optimizer=adam, average_decay=0.9),
        alone(records, plan(), optimizer=adam, average_decay=0.9),
    )


@pytest.mark.parametrize("rows", [1, 5])
def test_lots_in_several_chunks(records, rows, monkeypatch):
    """Lots of one model end in an earlier chunk than those of another."""
    chosen = plan(steps=3)
    whole = alone(records, chosen)
    monkeypatch.setattr("tacit.training.private_ensemble.first_chunk_size", lambda *_: rows)
    assert_same(together(records, chosen), whole)


NOISE, SCALE = 4.0, 0.5  # the multiplier, and the norm that it multiplies
WIDE = 24_000  # so many that a scale of 0.9 or 1.1 is missed with a chance below 1e-40


def wide() -> nn.Module:
    return nn.Linear(INPUTS, WIDE // INPUTS, bias=False)


def noise_of_one_step(own: list[Randomness]) -> list[np.ndarray]:
    """What the optimizer was given, times the divisor, where records have no gradient."""
    models = [wide() for _ in range(MODELS)]
    before = [model.weight.detach().clone() for model in models]
    descent = [torch.optim.SGD(model.parameters(), lr=1.0) for model in models]
    blank = torch.zeros(RECORDS, INPUTS), torch.zeros(RECORDS, dtype=torch.int64)  # no gradient at all
    chosen = plan(steps=1, noise_multiplier=NOISE, clipping=tacit.clipping.Flat(SCALE))
    PrivateEnsemble(models, classification_loss, blank, parts(), chosen, descent, own).fit(lambda _: None)
    steps = [(old - model.weight.detach()) * BATCH for old, model in zip(before, models, strict=True)]
    return [step.double().numpy().ravel() for step in steps]


def is_noise_of_scale(values: np.ndarray, scale: float) -> bool:
    """Variance and shape, at a chance of 1e-9 to accuse what is right."""
    low, high = stats.chi2(len(values)).ppf([5e-10, 1 - 5e-10])
    right_variance = low < float((values**2).sum()) / scale**2 < high
    return right_variance and stats.kstest(values / scale, "norm").pvalue > 1e-9


def are_independent(one: np.ndarray, other: np.ndarray) -> bool:
    return abs(np.corrcoef(one, other)[0, 1]) < 6.5 / np.sqrt(len(one))


def test_every_model_has_noise_of_the_plans_scale_and_of_its_own():
    noise = noise_of_one_step(sources(seed=None))
    for number, values in enumerate(noise):
        assert is_noise_of_scale(values, NOISE * SCALE)
        assert all(are_independent(values, other) for other in noise[:number])


def test_the_test_of_noise_rejects_near_misses():
    """Noise of 0.9 and 1.1, noise that models share, and half of one model's noise in another's."""
    one, other, _ = noise_of_one_step(sources(seed=None))
    for wrong in (0.9, 1.1):
        assert not is_noise_of_scale(wrong * one, NOISE * SCALE)
    assert not are_independent(one, one)
    assert not are_independent(one, (one + other) / 2)


def test_one_source_for_all_would_share_the_noise():
    """The planted bug: under a fixed seed the same source gives every model the same noise."""
    one, other, _ = noise_of_one_step([Randomness(unsafe_seed=3)] * MODELS)
    assert not are_independent(one, other)


def test_lots_are_poisson_of_the_plans_rate_for_each_model(records):
    """A model that counts: its sum is the number of records in its lot, since every gradient is clipped to 1."""
    batch, steps = 6, 100
    rate = batch / (RECORDS // 2)

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = nn.Parameter(torch.zeros(1))

    def loss(model: nn.Module, inputs: torch.Tensor, _targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(100 * torch.ones_like(inputs[:, :1]), model.count[:, None])[:, 0]

    models = [Counting() for _ in range(MODELS)]
    chosen = plan(
        expected_batch_size=batch,
        steps=steps,
        clipping=tacit.clipping.Flat(1.0),
        noise_multiplier=0.0,
        unsafe_no_noise=True,
    )
    descent = [torch.optim.SGD(model.parameters(), lr=1.0) for model in models]
    PrivateEnsemble(models, loss, records, parts(), chosen, descent, sources()).fit(lambda _: None)
    for model, rows in zip(models, parts(), strict=True):
        drawn = -float(model.count.detach()) * batch
        mean, spread = steps * rate * len(rows), np.sqrt(steps * rate * (1 - rate) * len(rows))
        assert abs(drawn - mean) < 6 * spread


def test_no_example_adds_more_than_the_bound_to_its_model_and_nothing_to_others(records):
    """Sums of neighbouring batches, where one record of the first model is as bad as can be."""
    models = [seeded(build, number) for number in range(MODELS)]
    inputs = records[0][: MODELS * 10].reshape(MODELS, 10, INPUTS).clone()
    targets = records[1][: MODELS * 10].reshape(MODELS, 10)
    inputs[0, 4] *= 1e6
    grad = StackedGrad(models, classification_loss, tacit.clipping.Flat(0.01), (inputs, targets))
    mask = torch.ones(MODELS, 10, dtype=torch.bool)
    without = mask.clone()
    without[0, 4] = False
    more, less = (grad.accumulate([((inputs, targets), each)]) for each in (mask, without))
    moved = torch.stack([(more[n] - less[n]).flatten(1).norm(dim=1) for n in more]).norm(dim=0)
    assert 0.0099 < float(moved[0]) <= grad.sensitivity(Neighbours.ADD_REMOVE) * (1 + 1e-5)
    assert not moved[1:].any()
    assert all(not value.any() for value in grad.accumulate([((inputs, targets), torch.zeros_like(mask))]).values())


def test_a_gradient_that_is_not_finite_adds_nothing(records):
    models = [seeded(build, number) for number in range(MODELS)]
    inputs = records[0][: MODELS * 10].reshape(MODELS, 10, INPUTS).clone()
    targets = records[1][: MODELS * 10].reshape(MODELS, 10)
    grad = StackedGrad(models, classification_loss, tacit.clipping.Flat(0.5), (inputs, targets))
    mask = torch.ones(MODELS, 10, dtype=torch.bool)
    without = mask.clone()
    without[1, 2] = False
    expected = grad.accumulate([((inputs, targets), without)])
    inputs[1, 2] = 3e38  # finite, and its gradient is not
    found = grad.accumulate([((inputs, targets), mask)])
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name])


class Dropping(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(INPUTS, 8), nn.Dropout(0.5), nn.Linear(8, CLASSES))


class Convolving(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Unflatten(1, (1, INPUTS)), nn.Conv1d(1, 4, 3), nn.Flatten(), nn.Linear(16, CLASSES))


class Mixing(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.BatchNorm1d(INPUTS), nn.Linear(INPUTS, CLASSES))


@pytest.mark.parametrize(
    ("made", "reason"),
    [(Dropping, "random operation"), (Convolving, "convolutions of several"), (Mixing, "BatchNorm1d")],
)
def test_what_cannot_be_stacked_is_refused_before_anything_is_drawn(records, made, reason):
    models = [seeded(made, number) for number in range(MODELS)]
    before = [model.state_dict()["0.weight" if made is Dropping else "1.weight"].clone() for model in models]
    with pytest.raises(UnsupportedError, match=reason):
        PrivateEnsemble(models, classification_loss, records, parts(), plan(), [*map(momentum, models)], sources())
    after = [model.state_dict()["0.weight" if made is Dropping else "1.weight"] for model in models]
    assert all(map(torch.equal, before, after))


def test_models_that_differ_are_refused(records):
    class Tempered(nn.Linear):
        temperature = 1.0

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs) * self.temperature

    models: list[nn.Module] = [seeded(lambda: Tempered(INPUTS, CLASSES), number) for number in range(MODELS)]
    models[2].temperature = 2.0
    with pytest.raises(UnsupportedError, match="model 2: the stack's sum differs"):
        PrivateEnsemble(models, classification_loss, records, parts(), plan(), [*map(momentum, models)], sources())
    models[2] = nn.Linear(INPUTS, CLASSES)
    with pytest.raises(UnsupportedError, match="not of one kind"):
        PrivateEnsemble(models, classification_loss, records, parts(), plan(), [*map(momentum, models)], sources())


def test_records_that_are_not_finite_are_refused(records):
    spoilt = records[0].clone()
    spoilt[3, 1] = float("nan")
    with pytest.raises(UnsupportedError, match="records: hold numbers that are not finite"):
        together((spoilt, records[1]), plan())
