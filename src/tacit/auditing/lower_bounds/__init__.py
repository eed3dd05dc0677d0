"""Evidence in, a lower bound on epsilon out: no model, no data, no torch."""

from tacit.auditing.lower_bounds.bound import LowerBound as LowerBound
from tacit.auditing.lower_bounds.families import DpSgdFamily as DpSgdFamily
from tacit.auditing.lower_bounds.families import Family as Family
from tacit.auditing.lower_bounds.families import GaussianFamily as GaussianFamily
from tacit.auditing.lower_bounds.gaussian_fit import gaussian_bound as gaussian_bound
from tacit.auditing.lower_bounds.guesses import Guesses as Guesses
from tacit.auditing.lower_bounds.independent_guesses import independent_guesses_bound as independent_guesses_bound
from tacit.auditing.lower_bounds.many_runs import clopper_pearson_bound as clopper_pearson_bound
from tacit.auditing.lower_bounds.one_run import one_run_bound as one_run_bound
from tacit.auditing.lower_bounds.one_run_tradeoff import one_run_tradeoff_bound as one_run_tradeoff_bound
