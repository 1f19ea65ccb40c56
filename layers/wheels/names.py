"""Names of packages. The standard library has no function for them."""

import re


def canonical_name(name: str) -> str:
    """Return a name as names are compared.

    Source: https://packaging.python.org/en/latest/specifications/name-normalization/
    """
    return re.sub(r"[-_.]+", "-", name).lower()
