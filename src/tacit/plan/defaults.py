"""The guarantee where a user asks for none in particular."""

DEFAULT_EPSILON = 3.0
_LARGEST_DELTA = 1e-5
_DELTA_TIMES_EXAMPLES = 0.1


def default_delta(examples: int) -> float:
    """1e-5, or less where there are many examples: a tenth of 1 / examples at most.

    A delta of 1 / examples would allow that one person's record is published outright.
    """
    return min(_LARGEST_DELTA, _DELTA_TIMES_EXAMPLES / examples)
