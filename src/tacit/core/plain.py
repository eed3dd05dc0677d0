"""Values as JSON knows them."""

import json
import math
from typing import Any


def to_json(values: Any, *, indent: int | None = None) -> str:
    """JSON text; numbers that are not finite become null, since JSON has none."""
    return json.dumps(_finite(values), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
