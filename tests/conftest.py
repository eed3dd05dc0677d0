"""Settings for all tests: examples are found the same way each time, and a busy machine fails nothing."""

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

os.environ["COLUMNS"] = "200"  # before any console is made, so that tables are as wide whichever test comes first

settings.register_profile("tacit", deadline=None, derandomize=True)
settings.load_profile("tacit")


@pytest.fixture(autouse=True)
def _same_arithmetic() -> Iterator[None]:
    """Undoes what torch does where a processor has no bfloat16: the first product in it turns oneDNN off for good.

    Float32 products then round in another way, and a run that another process began cannot be replayed to the bit.
    """
    enabled = torch.backends.mkldnn.enabled
    yield
    if torch.backends.mkldnn.enabled != enabled:
        torch.backends.mkldnn.set_flags(enabled)
