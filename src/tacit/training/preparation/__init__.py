"""Private preparations of the data: what `tacit.plan.preparation` promises, and those that there are."""

from tacit.training.preparation.normalisation import ChannelNormalisation as ChannelNormalisation
from tacit.training.preparation.preparing import apply as apply
from tacit.training.preparation.preparing import prepare as prepare
from tacit.training.preparation.preparing import prepared as prepared
from tacit.training.preparation.principal import PrincipalComponents as PrincipalComponents
from tacit.training.preparation.whitening import Centring as Centring
from tacit.training.preparation.whitening import ChannelWhitening as ChannelWhitening
