"""Lines of a shell. Pure."""

import shlex

from torchbake.jobs.field_types import SecretKey


def export(name: str, value: str) -> str:
    """A variable of what is started, whatever its value holds."""
    return f"export {name}={shlex.quote(value)}"


def wanted(name: str, key: SecretKey, what: str) -> str:
    """Ends the script where a secret's variable is not set."""
    return f': "${{{name}:?is the key {key.key} of the secret {key.secret}: {what}}}"'
