"""Names of variables that hold secrets. Pure."""

import re

_SECRET = re.compile(
    r"(?i)(^|_)(pass(word|wd|phrase)?|secrets?|tokens?|api_?key|access_?key|private_?key|signing_?key|credentials?|auth)(_|$)"
)


def looks_secret(name: str) -> bool:
    """Return whether a variable of this name probably holds a secret, such as ``HF_TOKEN``."""
    return bool(_SECRET.search(name))
