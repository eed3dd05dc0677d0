"""The optimizer's update: when plain descent may be taken for it, and gradients that are given up."""

import pytest
import torch
from torch import nn

from tacit.training.update import Update


def parameters():
    return {name: nn.Parameter(torch.zeros(2)) for name in ("a", "b")}


def test_plain_descent_is_seen():
    given = parameters()
    descent = Update(torch.optim.SGD(given.values(), lr=0.1)).descent(given)
    assert [(name, rate) for name, (_, rate) in descent.targets.items()] == [("a", 0.1), ("b", 0.1)]


def test_descent_is_the_same_until_something_changes():
    given, other = parameters(), nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([*given.values(), other], lr=0.1)
    update = Update(optimizer)
    first = update.descent(given)
    assert first.others == [other]
    assert update.descent(given) is first
    optimizer.param_groups[0]["lr"] = 0.2
    assert update.descent(given) is not first


@pytest.mark.parametrize("group", [0, 1])
def test_another_rate_in_any_group_is_another_descent(group):
    given = parameters()
    optimizer = torch.optim.SGD([{"params": [parameter]} for parameter in given.values()], lr=0.1)
    update = Update(optimizer)
    first = update.descent(given)
    assert update.descent(given) is first
    optimizer.param_groups[group]["lr"] = 0.2
    rates = [rate for _, rate in update.descent(given).targets.values()]
    assert rates == [0.2 if number == group else 0.1 for number in range(2)]


def test_what_the_optimizer_holds_beside_does_not_move():
    """Whatever gradient was left there, by a backward pass on raw data, would reach the model without noise."""
    given, other = parameters(), nn.Parameter(torch.zeros(2))
    other.grad = torch.ones(2)
    update = Update(torch.optim.Adam([*given.values(), other], lr=0.1))
    update(given, {name: torch.ones(2) for name in given})
    assert other.grad is None
    assert other.tolist() == [0.0, 0.0]
    assert all(parameter.abs().min() > 0 for parameter in given.values())


def test_a_hook_that_comes_later_ends_it():
    given = parameters()
    optimizer = torch.optim.SGD(given.values(), lr=0.1)
    update = Update(optimizer)
    assert update.descent(given) is not None
    handle = optimizer.register_step_post_hook(lambda *_: None)
    assert update.descent(given) is None
    handle.remove()
    assert update.descent(given) is not None


def test_a_parameter_that_leaves_the_optimizer_ends_it():
    given = parameters()
    optimizer = torch.optim.SGD(given.values(), lr=0.1)
    update = Update(optimizer)
    assert update.descent(given) is not None
    optimizer.param_groups[0]["params"].pop()
    assert update.descent(given) is None


def test_gradients_are_given_up_outside_the_optimizer_too():
    given = parameters()
    update = Update(torch.optim.SGD([given["a"]], lr=0.1))
    for parameter in given.values():
        parameter.grad = torch.ones(2)
    update.drop_gradients(given)
    assert all(parameter.grad is None for parameter in given.values())


@pytest.mark.parametrize("name", ["RMSprop", "Adam", "AdamW", "Adagrad", "Adadelta", "NAdam", "Rprop", "ASGD", "LBFGS"])
def test_other_optimizers_are_asked_themselves(name):
    given = parameters()
    assert Update(getattr(torch.optim, name)(given.values(), lr=0.1)).descent(given) is None


@pytest.mark.parametrize("option", [{"momentum": 0.9}, {"weight_decay": 0.1}, {"maximize": True}])
def test_descent_with_anything_else_is_none(option):
    given = parameters()
    assert Update(torch.optim.SGD(given.values(), lr=0.1, **option)).descent(given) is None
