"""A plan counts its preparations in calibration, in every epsilon and in every statement."""

import pytest
from dp_accounting import dp_event

from tacit.accounting import epsilon
from tacit.clipping import Flat
from tacit.core.errors import InputError
from tacit.plan import DPSGD
from tacit.training import PrincipalComponents

_PCA = PrincipalComponents(60, 7.0)
_COMMON = {"expected_batch_size": 600, "examples": 60_000, "steps": 1000, "clipping": Flat(4.0), "delta": 1e-5}


def test_epsilon_composes_preparation_and_training():
    plan = DPSGD(**_COMMON, noise_multiplier=4.0, preparations=[_PCA])
    step = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(4.0))
    whole = dp_event.ComposedDpEvent([dp_event.GaussianDpEvent(7.0), dp_event.SelfComposedDpEvent(step, 1000)])
    assert plan.epsilon() == epsilon(whole, 1e-5)
    assert plan.epsilon() > DPSGD(**_COMMON, noise_multiplier=4.0).epsilon()


def test_calibrated_noise_pays_for_the_preparation():
    alone = DPSGD(**_COMMON, epsilon=1.0)
    after = DPSGD(**_COMMON, epsilon=1.0, preparations=[_PCA])
    assert after.noise_multiplier > 1.05 * alone.noise_multiplier
    assert 0.99 < after.epsilon() <= 1.0


def test_a_model_after_no_step_has_paid_for_the_preparation():
    plan = DPSGD(**_COMMON, noise_multiplier=4.0, preparations=[_PCA])
    assert plan.epsilon(0) == pytest.approx(epsilon(dp_event.GaussianDpEvent(7.0), 1e-5), rel=1e-6)
    assert "DP-PCA to 60 dimensions" in str(plan.statement(0))


def test_what_the_training_alone_costs_leaves_the_preparation_out():
    plan = DPSGD(**_COMMON, noise_multiplier=4.0, preparations=[_PCA])
    assert plan.training_event(10) == DPSGD(**_COMMON, noise_multiplier=4.0).event(10)


def test_a_plan_without_preparations_is_as_before():
    plan = DPSGD(**_COMMON, noise_multiplier=4.0)
    assert plan.event() == plan.training_event(1000)
    assert "preparations" not in plan.to_dict()


def test_a_preparation_that_eats_the_budget_is_refused():
    with pytest.raises(InputError, match="epsilon"):
        DPSGD(**_COMMON, epsilon=0.5, preparations=[PrincipalComponents(60, 2.0)])


def test_what_is_no_preparation_is_refused():
    with pytest.raises(InputError, match="preparations="):
        DPSGD(**_COMMON, epsilon=0.5, preparations=["pca"])
