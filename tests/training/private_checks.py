"""Checks of a private step that a broken implementation fails, and what they share. Not a test file itself.

Every check is a function that raises `AssertionError`; the tests show that the real thing passes, and the planted bugs
that a wrong one does not.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, nn

from tacit.clipping import Clipping, Flat, PerLayer
from tacit.core.randomness import Randomness
from tacit.plan import DPSGD
from tacit.training import Execution, Private

ACCEPT, REJECT = 1e-4, 1e-8


def cross_entropy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y, reduction="none")


def no_gradient(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """A loss whose gradient is zero, so that an update is noise alone."""
    return 0 * cross_entropy(model, x, y)


def network(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to(dtype)


def records(count: int = 16, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 8, generator=generator, dtype=torch.float64).to(dtype)
    return x, torch.randint(0, 4, (count,), generator=generator)


def plan(**changes: Any) -> DPSGD:
    arguments: dict[str, Any] = {
        "expected_batch_size": 8,
        "examples": 16,
        "steps": 5,
        "clipping": Flat(0.5),
        "delta": 1e-5,
        "noise_multiplier": 1.5,
        **changes,
    }
    if "epsilon" in changes:
        del arguments["noise_multiplier"]
    elif arguments["noise_multiplier"] == 0:
        arguments["unsafe_no_noise"] = True
    return DPSGD(**arguments)


def updates(
    the_plan: DPSGD,
    *,
    loss_fn: Callable[..., Tensor] = no_gradient,
    model: nn.Module | None = None,
    data: Any = None,
    execution: Execution | None = None,
    randomness: Randomness | None = None,
) -> Iterator[dict[str, Tensor]]:
    """What each step adds to the model, times -L: the noisy sum, by parameter name."""
    model = model or network()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    private = Private(
        model,
        loss_fn,
        torch.optim.SGD(model.parameters(), lr=1.0),
        the_plan,
        randomness=randomness or Randomness(unsafe_seed=7),
        execution=execution or Execution(preflight=False),
    )
    for lot in private.batches(records() if data is None else data):
        private.step(lot)
        now = {name: p.detach().clone() for name, p in model.named_parameters()}
        yield {name: (before[name] - now[name]) * the_plan.expected_batch_size for name in now}
        before = now


def flat(grads: dict[str, Tensor]) -> Tensor:
    return torch.cat([grad.flatten() for grad in grads.values()])


def scale_p_value(noise: Tensor, scale: float) -> float:
    """How likely values of this size or stranger are under N(0, scale²), two-sided."""
    statistic = float((noise / scale).square().sum())
    count = noise.numel()
    return 2 * min(stats.chi2.cdf(statistic, count), stats.chi2.sf(statistic, count))


def check_noise_scale(noise: Tensor, scale: float) -> None:
    """Normal with this scale, and with neither 0.9 nor 1.1 of it."""
    assert scale_p_value(noise, scale) > ACCEPT
    assert stats.kstest(noise.flatten().numpy() / scale, stats.norm.cdf).pvalue > ACCEPT
    for near_miss in (0.9, 1.1):
        assert scale_p_value(noise, near_miss * scale) < REJECT


def check_uncorrelated(rows: Tensor) -> None:
    """Rows are independent draws: no pair of them is correlated."""
    correlations = np.corrcoef(rows.numpy())[np.triu_indices(len(rows), k=1)]
    statistic = float(np.sum(correlations**2) * rows.shape[1])
    assert stats.chi2.sf(statistic, correlations.size) > ACCEPT


# Checks of whole steps, each with its own small set-up.


def check_noise_of_steps(clipping: Clipping | None = None, **execution: Any) -> None:
    """Every coordinate of every step has noise of scale sigma C, whatever the chunks."""
    the_plan = plan(steps=30, **({} if clipping is None else {"clipping": clipping}))
    total = the_plan.clipping.bind({name: p.numel() for name, p in network().named_parameters()}).total
    noise = [flat(update) for update in updates(the_plan, execution=Execution(preflight=False, **execution))]
    check_noise_scale(torch.cat(noise), the_plan.noise_multiplier * total)
    check_uncorrelated(torch.stack(noise))


def check_contribution(model: nn.Module, loss_fn: Callable[..., Tensor], data: Any, bound: float = 0.5) -> None:
    """One record in a full batch without noise: the sum has at most the bound as its norm, and is not zero."""
    the_plan = plan(examples=1, expected_batch_size=1, steps=1, clipping=Flat(bound), noise_multiplier=0)
    for engine in ("bookkeeping", "functional", "reference"):
        execution = Execution(preflight=False, engine=engine)
        (update,) = updates(the_plan, loss_fn=loss_fn, model=model, data=data, execution=execution)
        assert 0 < float(flat(update).norm()) <= bound * (1 + 1e-9)


def check_contribution_of_a_large_gradient() -> None:
    check_contribution(network(), lambda m, x, y: 1e3 * cross_entropy(m, x, y), records(1))


def check_contribution_of_a_large_bias() -> None:
    """Inputs of zero leave gradients on the biases alone."""
    x, y = records(1)
    check_contribution(network(), lambda m, x, y: 1e3 * cross_entropy(m, x, y), (0 * x, y))


def check_contribution_of_equal_words() -> None:
    """All words are one: their gradients point the same way and add up in one row."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50, 4), nn.Flatten(), nn.Linear(24, 4)).double()
    model[2].requires_grad_(False)
    with torch.no_grad():
        model[2].weight.copy_(model[2].weight[:, :4].repeat(1, 6))
    ids = torch.full((1, 6), 3)
    check_contribution(model, lambda m, x, y: 1e3 * cross_entropy(m, x, y), (ids, torch.tensor([1])))


def check_divisor_is_public() -> None:
    """The same gradients in lots of different sizes: a record's share of the update does not depend on its mates."""
    shares = []
    for count in (1, 15, 16, 17):
        x, y = (column[:1].expand(count, *column.shape[1:]) for column in records(1))
        the_plan = plan(expected_batch_size=16, steps=1, noise_multiplier=0)  # sampling rate 1: everyone takes part
        (update,) = updates(the_plan, loss_fn=cross_entropy, data=(x, y))
        shares.append(flat(update) / count)
    for share in shares[1:]:
        torch.testing.assert_close(share, shares[0], rtol=1e-9, atol=1e-12)


def check_empty_lots_are_zero() -> None:
    """Two records at a rate of one in ten thousand: no lot holds any, and without noise nothing moves."""
    the_plan = plan(examples=10_000, expected_batch_size=1, steps=5, noise_multiplier=0)
    found = list(updates(the_plan, loss_fn=cross_entropy, data=records(2)))
    assert len(found) == 5
    assert all(bool((flat(update) == 0).all()) for update in found)


def check_a_record_that_is_not_finite_counts_for_nothing() -> None:
    """The update is that of the other records, whatever the broken one would have done."""
    x, y = records()
    broken = x.clone()
    broken[3] = torch.inf
    the_plan = plan(expected_batch_size=16, steps=1, noise_multiplier=0)
    (update,) = updates(the_plan, loss_fn=cross_entropy, data=(broken, y))
    rest = [i for i in range(16) if i != 3]
    (expected,) = updates(the_plan, loss_fn=cross_entropy, data=(x[rest], y[rest]))
    torch.testing.assert_close(flat(update), flat(expected), rtol=1e-9, atol=1e-12)


def check_noise_is_one_scale_for_all_layers() -> None:
    """Per-layer bounds of 0.3 and 0.4 are a sensitivity of 0.5 for every coordinate, not each layer's own."""
    the_plan = plan(steps=60, clipping=PerLayer({"0": 0.3, "2": 0.4}))
    found = list(updates(the_plan))
    for layer in ("0", "2"):
        noise = torch.cat([update[f"{layer}.{kind}"].flatten() for update in found for kind in ("weight", "bias")])
        check_noise_scale(noise, the_plan.noise_multiplier * 0.5)
