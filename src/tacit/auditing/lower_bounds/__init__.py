"""Evidence in, a lower bound on epsilon out: no model, no data, no torch."""

from tacit.auditing.lower_bounds.bound import LowerBound as LowerBound
from tacit.auditing.lower_bounds.guesses import Guesses as Guesses
from tacit.auditing.lower_bounds.one_run import one_run_bound as one_run_bound
