"""Lines of shell scripts. Pure."""

import shlex

from torchbake.jobs.field_types import SecretKey


def export(name: str, value: str) -> str:
    """Return the line that exports a variable, with its value quoted."""
    return f"export {name}={shlex.quote(value)}"


def secret_variable(name: str, key: SecretKey, what: str) -> str:
    """Return the line that ends the script if the variable of a secret is not set."""
    return f': "${{{name}:?is the key {key.key} of the secret {key.secret}: {what}}}"'
