"""Batch normalisation mixes examples; its replacement does not."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tacit.core.errors import InputError, UnsupportedError
from tacit.models import replace_batchnorm


def small_net():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 12), nn.BatchNorm1d(12)
    )


def test_pitfall_25_an_example_does_not_see_its_batch_mates():
    torch.manual_seed(0)
    model = small_net()
    replaced = replace_batchnorm(model).train()
    batch = torch.randn(5, 3, 8, 8)
    together = replaced(batch)
    alone = torch.cat([replaced(example.unsqueeze(0)) for example in batch])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6)
    # The original does see them, or this test would prove nothing.
    mates = torch.cat([batch[:1], batch[1:] * 3])
    assert not torch.allclose(model.train()(batch)[0], model(mates)[0], atol=1e-3)


def test_pitfall_25_no_buffers_are_left_to_update():
    replaced = replace_batchnorm(small_net()).train()
    assert list(replaced.buffers()) == []


def test_weights_are_carried_over_under_the_same_names_and_the_original_stays():
    model = small_net()
    with torch.no_grad():
        model[1].weight.uniform_(1, 2)
        model[1].bias.uniform_(-1, 1)
    model[1].bias.requires_grad_(False)
    replaced = replace_batchnorm(model)
    assert isinstance(model[1], nn.BatchNorm2d)
    assert type(replaced[1]) is nn.GroupNorm
    assert torch.equal(replaced[1].weight, model[1].weight)
    assert torch.equal(replaced[1].bias, model[1].bias)
    assert replaced[1].weight is not model[1].weight
    assert not replaced[1].bias.requires_grad
    assert dict(replaced.named_parameters()).keys() == dict(model.named_parameters()).keys()


@settings(deadline=None, max_examples=60)
@given(
    channels=st.integers(1, 300),
    groups=st.integers(1, 40),
    kind=st.sampled_from([nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm]),
)
def test_number_of_groups_is_the_largest_admissible(channels, groups, kind):
    norm = replace_batchnorm(kind(channels), groups=groups)
    least = 8 if kind is nn.BatchNorm1d else 2
    admissible = [g for g in range(1, channels + 1) if channels % g == 0 and g <= groups and channels // g >= least]
    assert norm.num_groups == max(admissible, default=1)
    assert norm.num_channels == channels


def test_vectors_keep_their_information():
    """On (batch, channels) a group of one value would be normalised to nothing."""
    torch.manual_seed(0)
    norm = replace_batchnorm(nn.BatchNorm1d(16))
    out = norm(torch.randn(4, 16))
    assert out.std() > 0.5
    assert replace_batchnorm(nn.BatchNorm1d(7))(torch.randn(4, 7)).isfinite().all()


def test_sharing_eps_affine_dtype_and_mode_are_kept():
    shared = nn.BatchNorm2d(8, eps=1e-3, affine=False)
    model = nn.ModuleDict({"a": shared, "b": shared}).eval()
    replaced = replace_batchnorm(model)
    assert replaced["a"] is replaced["b"]
    assert replaced["a"].eps == 1e-3
    assert replaced["a"].weight is None
    assert not replaced["a"].training
    assert replace_batchnorm(nn.BatchNorm2d(8).double()).weight.dtype == torch.float64


def test_a_model_without_batchnorm_comes_back_as_a_copy():
    model = nn.Sequential(nn.Linear(2, 2))
    replaced = replace_batchnorm(model)
    assert replaced is not model
    assert replaced[0].weight is not model[0].weight
    assert torch.equal(replaced[0].weight, model[0].weight)


def test_bad_input():
    with pytest.raises(InputError, match="groups=0"):
        replace_batchnorm(small_net(), groups=0)
    with pytest.raises(UnsupportedError, match=r"1 \(LazyBatchNorm2d\)"):
        replace_batchnorm(nn.Sequential(nn.Identity(), nn.LazyBatchNorm2d()))
