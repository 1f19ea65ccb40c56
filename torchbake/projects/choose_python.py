"""Choose the bases whose Python fits a project. Pure."""

from collections.abc import Sequence

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from torchbake.errors import LockError, UsageError
from torchbake.matrix.distributions import DISTRIBUTIONS
from torchbake.matrix.spec import BaseSpec
from torchbake.projects.folder import PythonRule
from torchbake.projects.pylock import first_patch

_OTHER = "For another Python, write a base of your own: docs/how-to/your-own.md#a-base-of-your-own"


def fitting_bases(rules: Sequence[PythonRule], base_name: str = "") -> list[tuple[BaseSpec, str]]:
    """Return the bases whose Python fits all rules, the best first, each with the reason.

    ``base_name`` is the name of the user's own choice, which counts more than a rule for one exact version. Raises
    UsageError if there is no such base, and LockError with the places of the rules if none fits.
    """
    if base_name:
        return [_base_by_name(rules, base_name)]
    exact = next((rule for rule in rules if rule.exact), None)
    fitting = [base for base in DISTRIBUTIONS if exact is None or _fits(base, exact)]
    if exact and not fitting:
        raise LockError(
            f"{exact.place}: names a Python that no distribution of images has: {_bases_in_words()}.",
            hint=f"Name one of these by --base, if the project also runs with its Python. {_HINT}",
        )
    for rule in (rule for rule in rules if not rule.exact):
        remaining = [base for base in fitting if _fits(base, rule)]
        if not remaining:
            other = f"the Python of {exact.place}" if exact else f"any Python of images: {_bases_in_words()}"
            raise LockError(f"{rule.place}: {rule.specifier} excludes {other}.", hint=_HINT)
        fitting = remaining
    ranges = [rule for rule in rules if not rule.exact]
    if exact:
        return [(base, exact.reason) for base in fitting]
    return [(base, _why(base, fitting, ranges)) for base in fitting]


def _base_by_name(rules: Sequence[PythonRule], base_name: str) -> tuple[BaseSpec, str]:
    base = next((base for base in DISTRIBUTIONS if base.name == base_name), None)
    if base is None:
        raise UsageError(
            f"--base {base_name}: there is no such base for a project; there are {_bases_in_words()}.", hint=_OTHER
        )
    for rule in rules:
        if not rule.exact and not _fits(base, rule):
            raise LockError(
                f"{rule.place}: {rule.specifier} excludes Python {base.python} of --base {base_name}.",
                hint="Name another base, or leave --base out.",
            )
    ignored = [rule.reason for rule in rules if rule.exact and not _fits(base, rule)]
    return base, f"that of --base {base_name}" + (f", in place of {ignored[0]}" if ignored else "")


def _why(base: BaseSpec, fitting: Sequence[BaseSpec], ranges: Sequence[PythonRule]) -> str:
    """Return why a base is chosen of all that fit."""
    reason = ranges[0].reason if ranges else "no file names another"
    others = sorted((other.python for other in fitting if other != base), key=lambda python: int(python[2:]))
    if not others:
        return reason
    allowed = f"{reason} also allows {', '.join(others)}" if ranges else f"{reason}, and {', '.join(others)} would do"
    return f"{allowed}; torchbake's own images have it first" if base == fitting[0] else allowed


def _fits(base: BaseSpec, rule: PythonRule) -> bool:
    try:
        specifier = SpecifierSet(rule.specifier)
    except InvalidSpecifier:
        raise LockError(
            f"{rule.place}: {rule.specifier!r} is no rule for versions of Python.", hint='Write it as ">=3.11".'
        ) from None
    return bool(rule.specifier and first_patch(specifier, base.python))


def _bases_in_words() -> str:
    return ", ".join(f"{base.name} ({base.python})" for base in DISTRIBUTIONS)


_HINT = f"Change the project's Python, for example: uv python pin {DISTRIBUTIONS[0].python}. {_OTHER}"
