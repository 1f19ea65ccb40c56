"""Names that say of a value that it is a secret. Pure."""

import re

_SECRET = re.compile(
    r"(?i)(^|_)(pass(word|wd|phrase)?|secrets?|tokens?|api_?key|access_?key|private_?key|signing_?key|credentials?|auth)(_|$)"
)


def looks_secret(name: str) -> bool:
    """Whether a variable of this name would hold a secret, such as ``HF_TOKEN``."""
    return bool(_SECRET.search(name))
