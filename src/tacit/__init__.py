"""Deep learning with differential privacy on PyTorch."""

from tacit.core import Budget as Budget
from tacit.core import Neighbours as Neighbours
from tacit.core import PrivacyUnit as PrivacyUnit
from tacit.core import Statement as Statement
