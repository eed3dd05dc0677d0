"""What is promised where nobody asks for anything in particular."""

import pytest

from tacit.plan import DEFAULT_EPSILON, default_delta


@pytest.mark.parametrize(("examples", "delta"), [(10, 1e-5), (10_000, 1e-5), (60_000, 0.1 / 60_000), (10**7, 1e-8)])
def test_delta_is_far_below_one_in_the_number_of_examples(examples, delta):
    assert default_delta(examples) == pytest.approx(delta)


def test_epsilon_is_three():
    assert DEFAULT_EPSILON == 3
