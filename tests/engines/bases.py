"""The matrix of the tests, with a Debian base that is bootstrapped."""

from tests.e2e.conftest import ROOT

IN_MATRIX = "debian:bookworm-slim"
NOWHERE = "registry.invalid/debian:12"  # no registry serves it, so torchbake bootstraps the base


def matrix_with(image: str) -> str:
    """Return this repository's matrix with another image as its base."""
    matrix = (ROOT / "matrix.yaml").read_text()
    assert f'"{IN_MATRIX}"' in matrix
    return matrix.replace(f'"{IN_MATRIX}"', f'"{image}"')
