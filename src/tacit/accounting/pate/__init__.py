"""PATE: what noisy votes cost, whatever they are and for the votes that were cast.

The events (`lnmax_event`, `gnmax_event`, `threshold_event`, `knn_vote_event`, ...) are data-independent: the ledger and
every accountant read them, and their epsilon is an ordinary number. The data-dependent bounds are lower where teachers
agree, and private: they come as `PrivateEpsilon`, and are published by `release_epsilon` only.
"""

from tacit.accounting.pate.events import confident_gnmax_event as confident_gnmax_event
from tacit.accounting.pate.events import gnmax_event as gnmax_event
from tacit.accounting.pate.events import knn_event as knn_event
from tacit.accounting.pate.events import knn_query_event as knn_query_event
from tacit.accounting.pate.events import knn_screening_event as knn_screening_event
from tacit.accounting.pate.events import knn_vote_event as knn_vote_event
from tacit.accounting.pate.events import lnmax_event as lnmax_event
from tacit.accounting.pate.events import threshold_event as threshold_event
from tacit.accounting.pate.gaussian import confident_gnmax_divergences as confident_gnmax_divergences
from tacit.accounting.pate.gaussian import confident_gnmax_epsilon as confident_gnmax_epsilon
from tacit.accounting.pate.gaussian import divergences_epsilon as divergences_epsilon
from tacit.accounting.pate.gaussian import gaussian_log_rarity as gaussian_log_rarity
from tacit.accounting.pate.gaussian import gnmax_divergences as gnmax_divergences
from tacit.accounting.pate.gaussian import gnmax_epsilon as gnmax_epsilon
from tacit.accounting.pate.gaussian import threshold_divergences as threshold_divergences
from tacit.accounting.pate.laplace import laplace_log_rarity as laplace_log_rarity
from tacit.accounting.pate.laplace import laplace_votes_moments as laplace_votes_moments
from tacit.accounting.pate.laplace import lnmax_epsilon as lnmax_epsilon
from tacit.accounting.pate.laplace import moments_epsilon as moments_epsilon
from tacit.accounting.pate.release import ReleasedEpsilon as ReleasedEpsilon
from tacit.accounting.pate.release import release_epsilon as release_epsilon
from tacit.accounting.pate.smooth import PrivateCost as PrivateCost
from tacit.accounting.pate.smooth import confident_gnmax_cost as confident_gnmax_cost
from tacit.accounting.pate.smooth import gnmax_cost as gnmax_cost
from tacit.accounting.pate.smooth import threshold_cost as threshold_cost
from tacit.accounting.pate.votes import PrivateEpsilon as PrivateEpsilon
