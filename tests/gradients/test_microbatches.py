"""Microbatches: the mean gradient of each group is bounded, and what that means for one record is stated."""

import math

import pytest
import torch
from torch import Tensor, nn

from tacit.clipping import Flat, Tanh
from tacit.core.errors import InputError, UnsupportedError
from tacit.core.privacy import Neighbours
from tacit.datasets import Split
from tacit.gradients import clipped_grad
from tacit.gradients.microbatches import in_microbatches, mean_over_microbatches
from tacit.plan import DPSGD
from tacit.training import Private

REPLACE = Neighbours.REPLACE_ONE


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x), y, reduction="none")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def records(count: int = 13) -> Split:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 6, generator=generator, dtype=torch.float64)
    return Split(x, torch.randint(0, 3, (count,), generator=generator))


def bounded_mean_gradient(model: nn.Module, rule: Tanh, x: Tensor, y: Tensor) -> Tensor:
    grads = torch.autograd.grad(loss(model, x, y).mean(), list(model.parameters()))
    filtered = rule.c * torch.tanh(torch.cat([g.flatten() for g in grads]) / rule.k)
    limit = math.inf if rule.bound is None else rule.bound
    return filtered * min(1.0, limit / float(filtered.norm()))


def flat_sum(split: Split, rule: Tanh, engine: str = "auto") -> Tensor:
    grad = clipped_grad(network(), mean_over_microbatches(loss), clipping=rule, engine=engine)
    return torch.cat([value.flatten() for value in grad(*split[:]).grads.values()])


@pytest.mark.parametrize("rule", [Tanh(0.3, 0.1), Tanh(0.3, 0.1, bound=0.2)], ids=repr)
@pytest.mark.parametrize("engine", ["reference", "functional", "bookkeeping"])
def test_each_group_adds_its_bounded_mean_gradient(engine, rule):
    groups = in_microbatches(records(), 4, REPLACE)
    assert groups.inputs.shape == (3, 4, 6)  # the thirteenth record is not used
    expected = sum(bounded_mean_gradient(network(), rule, x, y) for x, y in zip(*groups[:], strict=True))
    torch.testing.assert_close(flat_sum(groups, rule, engine), expected, rtol=1e-5, atol=1e-7)


def test_replacing_one_record_moves_the_sum_by_twice_c_root_n_and_no_more():
    """A record with large gradients decides the signs of its whole group."""
    model = nn.Linear(6, 5, bias=False).double()
    grad = clipped_grad(model, mean_over_microbatches(lambda m, x, y: m(x).sum(1)), clipping=Tanh(0.3, 0.1))
    sums = []
    for value in (1e6, -1e6):
        split = records()
        split.inputs[5] = value
        sums.append(grad(*in_microbatches(split, 4, REPLACE)[:]).grads["weight"])
    limit = 2 * 0.3 * math.sqrt(30)
    assert grad.sensitivity(REPLACE) == limit
    assert limit * (1 - 1e-5) <= float((sums[0] - sums[1]).norm()) <= limit


def test_removing_one_record_moves_the_sum_by_more_than_that_and_is_refused():
    rule, split = Tanh(0.3, 1e-9), records(400)
    numbers = sum(p.numel() for p in network().parameters())
    without = Split(split.inputs[1:], split.targets[1:])
    before, after = (flat_sum(in_microbatches(each, 4, REPLACE), rule) for each in (split, without))
    assert float((after - before).norm()) > 2 * 0.3 * math.sqrt(numbers)
    for neighbours in (Neighbours.ADD_REMOVE, Neighbours.ZERO_OUT):
        with pytest.raises(UnsupportedError, match=r"REPLACE_ONE"):
            in_microbatches(split, 4, neighbours)


def test_a_plan_trains_on_groups_under_replace_one():
    plan = DPSGD(
        expected_batch_size=5,
        examples=10,
        steps=3,
        clipping=Tanh(0.3, 0.1, bound=0.2),
        delta=1e-3,
        noise_multiplier=1.0,
        neighbours=REPLACE,
    )
    model = network()
    groups = in_microbatches(records(40), 4, plan.neighbours)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private = Private(model, mean_over_microbatches(loss), optimizer, plan)
    for lot in private.batches(groups):
        private.step(lot)
    assert (
        private.statement().epsilon
        > DPSGD(
            expected_batch_size=5, examples=10, steps=3, clipping=Flat(1.0), delta=1e-3, noise_multiplier=1.0
        ).epsilon()
    )


def test_what_is_no_group_is_refused():
    with pytest.raises(InputError, match="size=50"):
        in_microbatches(records(), 50, REPLACE)
    with pytest.raises(InputError, match="size=0"):
        in_microbatches(records(), 0, REPLACE)
    grouped = mean_over_microbatches(loss)
    with pytest.raises(InputError, match=r"\[groups, size"):
        grouped(network(), torch.zeros(2, 3, 6), torch.zeros(2, 4, dtype=torch.int64))
