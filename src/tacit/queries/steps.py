r"""The grid that sums of real numbers are released on.

A row's numbers are rounded to units so fine, `UNIT_BITS` of them, that a million rows' rounding is nothing beside the
noise, and added up exactly. **The sums, not the rows, are then rounded to coarse steps** and noised there: accountants
hold one number for each step that a unit of privacy moves, so steps as fine as the rows' would fill the memory.

Rounding half up, :math:`\lfloor v/s + 1/2 \rfloor`, moves by at most :math:`\lceil \delta/s \rceil` where v moves by
:math:`\delta`: between v and v + δ lie at most that many of the points where it jumps, which are s apart. So rounding
costs a step a sum at most, and `tacit.queries.noise.Distance.rounded` pays for it: less than a ten thousandth of the
noise, unless one person has many rows. Several rows that change together move the rounded sums no further than one
after the other, each by the distance of one row.
"""

UNIT_BITS = 30
_MOST_BITS, _LEAST_BITS = 16, 8
_BITS_OF_ALL_ROWS = 20


def units_a_step(records: int) -> int:
    """How many units a step has, a power of two, where one unit of privacy has up to ``records`` rows.

    An added row moves a sum by up to 2^30 units, 2^16 steps. Where more than 16 rows change together a row has fewer
    steps, so that all of them move it by 2^20 at most, but no fewer than 2^8: rounding then costs a hundredth or two of
    the noise.
    """
    bits = _BITS_OF_ALL_ROWS - (records - 1).bit_length()
    return 1 << (UNIT_BITS - min(max(bits, _LEAST_BITS), _MOST_BITS))


def to_steps(value: int, units: int) -> int:
    """The nearest step, half up, in whole numbers."""
    return (value + units // 2) // units
