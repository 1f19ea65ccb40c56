"""Names of images and registries that people type: a refusal has the name to write instead."""

import pytest

from torchbake.errors import UsageError
from torchbake.oci.reference import parse_reference, parse_registry


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("USER/pai.run.pytorch", "user/pai.run.pytorch"),
        ("PyTorch", "pytorch"),
        ("ghcr.io/Acme/pytorch:CPU", "ghcr.io/acme/pytorch:CPU"),
        ("GHCR.io:5000/Acme/PyTorch", "ghcr.io:5000/acme/pytorch"),
        (f"Acme/pytorch@sha256:{'a' * 64}", f"acme/pytorch@sha256:{'a' * 64}"),
        (f"Acme/pytorch:V1@sha256:{'a' * 64}", f"acme/pytorch:V1@sha256:{'a' * 64}"),
    ],
)
def test_an_upper_case_repository_is_refused_with_its_name(text: str, instead: str) -> None:
    with pytest.raises(UsageError, match="lower case") as refused:
        parse_reference(text)
    assert refused.value.hint == f"Write {instead}"
    assert instead in str(parse_reference(instead))


def test_an_upper_case_namespace_is_refused_with_its_name() -> None:
    with pytest.raises(UsageError, match="lower case") as refused:
        parse_registry("ghcr.io/ACME/Team")
    assert refused.value.hint == "Write ghcr.io/acme/team"
    assert parse_registry("GHCR.io/acme").path == "acme"


def test_case_is_not_blamed_for_other_mistakes() -> None:
    for text in ("Acme//pytorch", "Acme/pytorch:a:b", "https://Acme/pytorch", "acme/pytorch:-"):
        with pytest.raises(UsageError) as refused:
            parse_reference(text)
        assert "lower case" not in str(refused.value), text
    with pytest.raises(UsageError) as refused:
        parse_registry("https://ghcr.io/Acme")
    assert "lower case" not in str(refused.value)
