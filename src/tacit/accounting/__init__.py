"""Accounting: events in, epsilon at delta out.

Events are dp-accounting's `DpEvent` classes. Seven accountants read them (`ACCOUNTANTS`): ``pld``, the default and the
tightest; ``rdp``; ``moments``, as published in 2016; ``basic``, ``strong`` and ``strong-rigorous`` composition; and
``gdp``. For all but ``gdp`` and ``strong`` epsilon is a proven upper bound, which `calibrate_noise` and its siblings
insist on.

>>> event = dpsgd_event(sampling_rate=0.01, noise_multiplier=4.0, steps=10_000)
>>> round(epsilon(event, delta=1e-5), 2)
0.95
"""

from tacit.accounting.accountants import ACCOUNTANTS as ACCOUNTANTS
from tacit.accounting.accountants import delta as delta
from tacit.accounting.accountants import epsilon as epsilon
from tacit.accounting.accountants import epsilon_by_accountant as epsilon_by_accountant
from tacit.accounting.accountants import epsilon_over_steps as epsilon_over_steps
from tacit.accounting.accountants import find_accountant as find_accountant
from tacit.accounting.base import Accountant as Accountant
from tacit.accounting.calibration import calibrate_batch_size as calibrate_batch_size
from tacit.accounting.calibration import calibrate_dpsgd_batch_size as calibrate_dpsgd_batch_size
from tacit.accounting.calibration import calibrate_dpsgd_noise as calibrate_dpsgd_noise
from tacit.accounting.calibration import calibrate_dpsgd_sampling_rate as calibrate_dpsgd_sampling_rate
from tacit.accounting.calibration import calibrate_dpsgd_steps as calibrate_dpsgd_steps
from tacit.accounting.calibration import calibrate_noise as calibrate_noise
from tacit.accounting.calibration import calibrate_sampling_rate as calibrate_sampling_rate
from tacit.accounting.calibration import calibrate_steps as calibrate_steps
from tacit.accounting.composition import CompositionAccountant as CompositionAccountant
from tacit.accounting.conversion import gaussian_delta as gaussian_delta
from tacit.accounting.conversion import gaussian_epsilon as gaussian_epsilon
from tacit.accounting.conversion import gaussian_noise as gaussian_noise
from tacit.accounting.conversion import gdp_from_budget as gdp_from_budget
from tacit.accounting.conversion import gdp_to_delta as gdp_to_delta
from tacit.accounting.conversion import gdp_to_epsilon as gdp_to_epsilon
from tacit.accounting.conversion import group_privacy as group_privacy
from tacit.accounting.conversion import pure_to_rdp as pure_to_rdp
from tacit.accounting.conversion import pure_to_zcdp as pure_to_zcdp
from tacit.accounting.conversion import rdp_to_delta as rdp_to_delta
from tacit.accounting.conversion import rdp_to_epsilon as rdp_to_epsilon
from tacit.accounting.conversion import zcdp_to_delta as zcdp_to_delta
from tacit.accounting.conversion import zcdp_to_epsilon as zcdp_to_epsilon
from tacit.accounting.conversion import zcdp_to_rdp as zcdp_to_rdp
from tacit.accounting.events import check_event as check_event
from tacit.accounting.events import dpsgd_event as dpsgd_event
from tacit.accounting.events import event_from_json as event_from_json
from tacit.accounting.events import event_to_json as event_to_json
from tacit.accounting.gaussian_dp import GaussianDpAccountant as GaussianDpAccountant
from tacit.accounting.loss_distribution import LossDistributionAccountant as LossDistributionAccountant
from tacit.accounting.moments import MomentsAccountant as MomentsAccountant
from tacit.accounting.renyi import RenyiAccountant as RenyiAccountant
from tacit.accounting.tanh_filter import TanhFilterStatements as TanhFilterStatements
from tacit.accounting.tanh_filter import tanh_filter_statements as tanh_filter_statements
