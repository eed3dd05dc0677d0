"""The errors that tacit raises on purpose. Each message names what was wrong, its value, and what to do instead.

The command line turns `BudgetExceededError` into exit status 3 and every other `TacitError` into exit status 2.
"""


class TacitError(Exception):
    """Base of every error that tacit raises on purpose."""


class InputError(TacitError, ValueError):
    """An argument, a file or a data set is not what the contract asks for."""


class UnsupportedError(TacitError):
    """A layer, sampler, event or relation for which no guarantee can be given. Unknown means refused."""


class BudgetExceededError(TacitError):
    """The work would spend more than the budget holds; nothing was spent."""


class LedgerError(TacitError):
    """The ledger cannot be read, written or believed; no noise may be drawn.

    What was asked for counts in full or not at all: a failure after the database has taken a reservation, and before it
    says so, leaves it open in the ledger.
    """
