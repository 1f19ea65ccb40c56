"""Images as Docker and podman list them."""

import pytest

from torchbake.engine.image import by_tag, of_inspection, short_name


@pytest.mark.parametrize(
    ("listed", "name"),
    [
        ("docker.io/acme/pytorch:1", "acme/pytorch:1"),
        ("docker.io/library/debian:12", "debian:12"),
        ("acme/pytorch:1", "acme/pytorch:1"),
        ("library/debian:12", "library/debian:12"),
        ("localhost/debian:12", "localhost/debian:12"),
        ("registry.example.com/library/debian:12", "registry.example.com/library/debian:12"),
    ],
)
def test_names_are_those_that_docker_lists(listed: str, name: str) -> None:
    entry = {"Id": "sha256:1", "RepoTags": [listed], "Labels": None, "Size": 1, "Config": {"Labels": None}}
    assert short_name(listed) == name
    assert [*by_tag([entry])] == [name]
    assert of_inspection(entry).tags == (name,)
