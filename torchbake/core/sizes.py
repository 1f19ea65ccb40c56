"""Numbers of bytes as people read them. Pure."""


def human(size: float) -> str:
    """Bytes as people read them, in the units that docker uses: ``82 kB``, ``937 MB``, ``1.18 GB``."""
    value = float(abs(size))
    sign = "−" if size < 0 else ""
    for unit in ("B", "kB", "MB"):
        if value < 999.5:
            return f"{sign}{value:.3g} {unit}"
        value /= 1000
    return f"{sign}{value:.2f} GB"
