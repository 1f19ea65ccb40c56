"""Numbers of bytes as text. Pure."""

import re

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?", re.IGNORECASE)
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def parse_size(text: str) -> int:
    """Read a number of bytes: ``20GB``, ``1.5 TB``, ``0``. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a size; write it as 20GB or 500MB")
    return round(float(match[1]) * _FACTORS[match[2].lower()])


def human(size: float) -> str:
    """Format a number of bytes in docker's units: ``82 kB``, ``937 MB``, ``1.18 GB``."""
    value = float(abs(size))
    sign = "−" if size < 0 else ""
    for unit in ("B", "kB", "MB"):
        if value < 999.5:
            return f"{sign}{value:.3g} {unit}"
        value /= 1000
    return f"{sign}{value:.2f} GB"
