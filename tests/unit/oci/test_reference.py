"""Names of images and registries that people type: a refusal has the name to write instead."""

import pytest

from torchbake.errors import UsageError
from torchbake.oci.reference import names_host, parse_reference, parse_registry


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


def test_a_name_has_a_host_only_before_a_slash() -> None:
    for text, host, path in (
        ("localhost", "docker.io", "library/localhost"),
        ("ghcr.io", "docker.io", "library/ghcr.io"),
        ("localhost/a", "localhost", "a"),
        ("team/a", "docker.io", "team/a"),
        ("ghcr.io/a", "ghcr.io", "a"),
        ("host:5000/a", "host:5000", "a"),
        ("[::1]:5000/a", "[::1]:5000", "a"),
    ):
        repository = parse_reference(text).repository
        assert (repository.host, repository.path) == (host, path)
        assert names_host(text) == (host != "docker.io"), text


def test_a_reference_has_a_tag_a_digest_or_both() -> None:
    digest = f"sha256:{'a' * 64}"
    for text, tag, expected in (
        ("a/b", "latest", ""),
        ("a/b:c", "c", ""),
        (f"a/b@{digest}", "", digest),
        (f"a/b:c@{digest}", "c", digest),
    ):
        reference = parse_reference(text)
        assert (reference.tag, reference.digest) == (tag, expected)
    assert parse_reference(f"a/{'b' * 253}").repository.path == f"a/{'b' * 253}"
    with pytest.raises(UsageError):
        parse_reference(f"a/{'b' * 254}")
