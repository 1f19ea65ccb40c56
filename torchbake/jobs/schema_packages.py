"""The packages that schemas and models come with: extras, as few want to hold a manifest against them."""

from torchbake.errors import InstallError


def not_installed(what: str, package: str) -> InstallError:
    """``what``: the beginning of the sentence, ``The schemas are``."""
    return InstallError(
        f"{what} in the package {package}, which is not installed.",
        hint="Run: pip install 'torchbake[jobs]', and then torchbake job show … --check",
    )
