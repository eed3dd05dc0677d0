"""Box-Muller with as many digits as it takes, and the words at the ends of every range."""

import mpmath

ENDS = [0, 1, 2**8, 2**24 - 1, 2**30 - 1, 2**30, 2**31 - 1, 2**31, 0xB504F333, 0xB504F334, 2**32 - 2, 2**32 - 1]


def exact_pair(high: int, low: int, angle: int, angle_bits: int) -> tuple[float, float]:
    """Box-Muller with fifty digits."""
    with mpmath.workdps(50):
        radius = mpmath.sqrt(-2 * mpmath.log((mpmath.mpf((high << 32) | low) + 0.5) / 2**64))
        quarter, part = divmod(angle, 2 ** (angle_bits - 2))
        turn = mpmath.pi / 2 * (mpmath.mpf(part) + 0.5) / 2 ** (angle_bits - 2)
        first, second = radius * mpmath.sin(turn), radius * mpmath.cos(turn)
        return float(-first if quarter >= 2 else first), float(-second if quarter % 2 else second)
