"""Private steps with the tanh filter: the right sum, noise for its true sensitivity, and planted bugs."""

import dataclasses
import math

import private_checks as checks
import pytest
import torch
from private_checks import cross_entropy, flat, network, plan, records, updates
from torch import nn

from tacit.clipping import BoundClipping, Tanh
from tacit.gradients import clipped_sum, engines
from tacit.gradients.contributions import Direct
from tacit.gradients.parameter_gradients import ParameterGradients
from tacit.training import Execution

ALONE, BOUNDED = Tanh(0.4, 0.2), Tanh(0.4, 0.2, bound=0.5)
NUMBERS = sum(p.numel() for p in network().parameters())
real_sum = clipped_sum.sum_clipped
real_filtered = clipped_sum._filtered


def full_lot(rule, **options):
    """One step without noise on all records."""
    the_plan = plan(expected_batch_size=16, steps=1, noise_multiplier=0, clipping=rule)
    (update,) = updates(the_plan, **{"loss_fn": cross_entropy, "execution": Execution(preflight=False), **options})
    return flat(update)


def check_sum():
    """The update is the sum of filtered gradients, one record at a time, by plain autograd."""
    model, (x, y) = network(), records()
    expected = torch.zeros(NUMBERS, dtype=torch.float64)
    for i in range(len(x)):
        grads = torch.autograd.grad(5 * cross_entropy(model, x[i : i + 1], y[i : i + 1])[0], list(model.parameters()))
        expected += 0.4 * torch.tanh(torch.cat([g.flatten() for g in grads]) / 0.2)
    found = full_lot(ALONE, loss_fn=lambda *inputs: 5 * cross_entropy(*inputs))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def check_one_record_keeps_the_bound():
    for rule, limit in ((ALONE, 0.4 * math.sqrt(NUMBERS)), (BOUNDED, 0.5)):
        for engine in ("bookkeeping", "functional", "reference"):
            found = full_lot(
                rule,
                loss_fn=lambda *inputs: 1e9 * cross_entropy(*inputs),
                data=records(1),
                execution=Execution(preflight=False, engine=engine),
            )
            assert 0.9 * limit < float(found.norm()) <= limit * (1 + 1e-9)


def check_infinite_gradients_add_nothing():
    """Tanh of infinity is 1, and yet such a record counts for nothing."""
    x, y = records()
    rest = [i for i in range(16) if i != 3]
    x[3, 0] = 9.0

    def one_layer(data):
        def loss(model, x, y):
            return model(x).sum(1) * torch.where(x[:, 0] == 9.0, torch.inf, 1.0)

        return full_lot(ALONE, loss_fn=loss, model=nn.Linear(8, 4).double(), data=data)

    torch.testing.assert_close(one_layer((x, y)), one_layer((x[rest], y[rest])))


def k_forgotten(patch):
    patch.setattr(Tanh, "filter", lambda self, g: self.c * torch.tanh(g))


def c_forgotten(patch):
    patch.setattr(Tanh, "filter", lambda self, g: torch.tanh(g / self.k))


def filter_forgotten(patch):
    patch.setattr(Tanh, "filter", lambda self, g: g)


def filter_after_the_sum(patch):
    def late(grads, bound, mask, strategies):
        sums, norms = real_sum(grads, dataclasses.replace(bound, filter=None, bounds=(1e30,)), mask, strategies)
        return {name: bound.filter(value) for name, value in sums.items()}, norms

    patch.setattr(engines, "sum_clipped", late)


def sensitivity_counted_as_one(patch):
    """The paper's."""
    patch.setattr(BoundClipping, "total", property(lambda self: 1.0))


def norm_not_bounded(patch):
    def no_factors(norms, bound, mask):
        return torch.where(mask[:, None], torch.ones_like(norms), torch.zeros_like(norms))

    patch.setattr(clipped_sum, "clip_factors", no_factors)


def norm_from_before_the_filter(patch):
    def early(*inputs):
        sources, norms, _ = real_filtered(*inputs)
        return sources, norms, norms

    patch.setattr(clipped_sum, "_filtered", early)


def infinities_pass_as_saturated(patch):
    def unseen(grads, *rest):
        sources, _ = clipped_sum._measured(grads, *rest)
        filtered = {
            name: ParameterGradients([Direct(ALONE.filter(each.written_out()))]) for name, each in sources.items()
        }
        sources, taken = clipped_sum._measured(filtered, *rest)
        return sources, taken, taken

    patch.setattr(clipped_sum, "_filtered", unseen)


def check_noise():
    checks.check_noise_scale(
        torch.cat([flat(update) for update in updates(plan(steps=30, clipping=ALONE))]), 1.5 * 0.4 * math.sqrt(NUMBERS)
    )
    checks.check_noise_scale(
        torch.cat([flat(update) for update in updates(plan(steps=30, clipping=BOUNDED))]), 1.5 * 0.5
    )


CHECKS = {
    "sum": check_sum,
    "one record": check_one_record_keeps_the_bound,
    "not finite": check_infinite_gradients_add_nothing,
    "noise": check_noise,
}
PLANTED = [
    (k_forgotten, "sum"),
    (c_forgotten, "sum"),
    (filter_forgotten, "sum"),
    (filter_after_the_sum, "sum"),
    (norm_not_bounded, "one record"),
    (norm_from_before_the_filter, "sum"),
    (infinities_pass_as_saturated, "not finite"),
    (sensitivity_counted_as_one, "noise"),
]


@pytest.mark.parametrize("name", CHECKS)
def test_the_real_thing_passes(name):
    CHECKS[name]()


@pytest.mark.parametrize(("bug", "name"), PLANTED, ids=lambda value: getattr(value, "__name__", value))
def test_pitfall_40_a_planted_bug_is_caught(bug, name, monkeypatch):
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        CHECKS[name]()


@pytest.mark.parametrize("execution", [{"chunk_size": 3}, {"engine": "functional"}, {"engine": "reference"}], ids=str)
def test_pitfall_14_one_noise_a_lot_whatever_chunks_and_engine(execution):
    checks.check_noise_of_steps(ALONE, **execution)


def test_the_statement_names_the_filter_and_its_epsilon_is_for_the_noise_over_the_sensitivity():
    the_plan = plan(clipping=ALONE)
    assert "0.4 tanh(g / 0.2) and clipped at norm 0.4 sqrt(n)" in str(the_plan.statement())
    assert the_plan.epsilon() == plan().epsilon()  # the same multiplier, whatever it multiplies
