"""What every room speaks of: budgets, relations, units, statements, errors and randomness."""

from tacit.core.errors import BudgetExceededError as BudgetExceededError
from tacit.core.errors import InputError as InputError
from tacit.core.errors import LedgerError as LedgerError
from tacit.core.errors import TacitError as TacitError
from tacit.core.errors import UnsupportedError as UnsupportedError
from tacit.core.privacy import Budget as Budget
from tacit.core.privacy import Neighbours as Neighbours
from tacit.core.privacy import PrivacyUnit as PrivacyUnit
from tacit.core.privacy import Statement as Statement
