"""Vote counts as every bound of PATE reads them, checked, and the number that must not leave by accident.

Neighbouring data sets differ in one privacy unit. Each unit sits with one teacher, whatever the other units are, so
one teacher's answers may change: for every query at most **one vote moves** from one class to another.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from tacit.accounting.dominating import FloatArray
from tacit.core.errors import InputError
from tacit.core.validation import check_count

Votes = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class PrivateEpsilon:
    """A data-dependent epsilon, computed from the teachers' votes: **itself private information**.

    It may guide whoever may see the private data. It must not be published: that takes `release_epsilon`, or the
    data-independent epsilon of the events, which is an ordinary number. The value is not shown when the object is
    printed, and it turns into a number only under a name that says so.

    Attributes:
        unsafe_value: the epsilon.
        delta: where it was evaluated.
    """

    unsafe_value: float = dataclasses.field(repr=False)
    delta: float


def check_votes(votes: npt.ArrayLike, teachers: int | None = None) -> Votes:
    """Counts ``[queries, classes]`` as whole numbers; each row adds up to the number of teachers.

    Without ``teachers`` the first row tells their number. No queries at all are fine, since nothing was spent.

    Raises:
        InputError: no matrix, no class, counts that are negative or not whole, or rows that do not add up.
    """
    counts = np.asarray(votes)
    if counts.ndim != 2 or counts.shape[1] == 0:
        raise InputError(f"votes of shape {counts.shape}: must be [queries, classes] with at least one class.")
    whole = _whole_numbers("votes", counts)
    if (whole < 0).any():
        raise InputError(f"votes: hold {whole.min()}, but counts are at least 0.")
    sums = whole.sum(axis=1)
    expected = int(sums[0]) if teachers is None and len(sums) else teachers
    if expected is None:
        return whole
    check_count("teachers", expected, remedy="Every query needs the vote of every teacher.")
    if (sums != expected).any():
        query = int(np.flatnonzero(sums != expected)[0])
        raise InputError(
            f"votes[{query}]: adds up to {sums[query]} with {expected} teachers. Every teacher votes once a query."
        )
    return whole


def check_baseline(baseline: npt.ArrayLike | None, votes: Votes) -> Votes:
    """What is taken off the counts before the threshold test: public whole numbers in the shape of the votes, or 0."""
    if baseline is None:
        return np.zeros_like(votes)
    whole = _whole_numbers("baseline", np.asarray(baseline))
    if whole.shape != votes.shape:
        raise InputError(f"baseline of shape {whole.shape}: must have the shape of the votes, {votes.shape}.")
    return whole


def check_answered(answered: npt.ArrayLike, votes: Votes) -> npt.NDArray[np.bool_]:
    """Which queries got past the test: one truth value a query."""
    flags = np.asarray(answered)
    if flags.dtype != np.bool_ or flags.shape != votes.shape[:1]:
        raise InputError(
            f"answered of shape {flags.shape} and type {flags.dtype}: must be one truth value for each of the "
            f"{len(votes)} queries."
        )
    return flags


def check_orders(name: str, orders: npt.ArrayLike, above: float) -> FloatArray:
    """A list of finite numbers above a limit."""
    values = np.atleast_1d(np.asarray(orders, dtype=np.float64))
    if values.ndim != 1 or not values.size or not (np.isfinite(values) & (values > above)).all():
        raise InputError(f"{name}={orders!r}: must be finite numbers above {above:g}, at least one.")
    return values


def gaps(votes: Votes) -> FloatArray:
    """By how many votes the plurality leads each other class, ``[queries, classes - 1]``, the smallest lead first.

    With a tie any of the leaders counts as the plurality, and the other one's gap is 0.
    """
    ordered = -np.sort(-votes, axis=1)
    return np.asarray(ordered[:, :1] - ordered[:, 1:], dtype=np.float64)


def log_sum(log_terms: FloatArray) -> FloatArray:
    """log of the sum of exponentials along the last axis; minus infinity for an empty sum."""
    return np.asarray(np.logaddexp.reduce(log_terms, axis=-1, initial=-np.inf))


def log1mexp(x: FloatArray) -> FloatArray:
    """log(1 - e^x) for x <= 0 without cancellation."""
    with np.errstate(divide="ignore"):
        return np.where(x > -0.693, np.log(-np.expm1(np.minimum(x, 0.0))), np.log1p(-np.exp(x)))


def _whole_numbers(name: str, values: npt.NDArray[np.generic]) -> Votes:
    if values.dtype == np.bool_ or not (
        np.issubdtype(values.dtype, np.integer) or np.issubdtype(values.dtype, np.floating)
    ):
        raise InputError(f"{name} of type {values.dtype}: must be whole numbers.")
    whole = np.rint(values)
    if not np.isfinite(whole).all() or (whole != values).any():
        raise InputError(f"{name}: must be whole numbers, without fractions, infinities or NaN.")
    return np.asarray(whole, dtype=np.int64)
