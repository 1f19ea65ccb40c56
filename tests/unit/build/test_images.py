"""Requests that an engine cannot fulfil."""

from typing import Any

import pytest

from torchbake.build.images import Request, _check_podman
from torchbake.errors import UsageError


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("--builder", {"builder": "kube"}),
        ("--cache-to", {"cache_to": ("type=inline",)}),
        ("--cache-from", {"cache_from": ("type=inline",)}),
        ("--prune", {"prune": True}),
    ],
)
def test_podman_refuses_the_options_of_buildkit(option: str, given: dict[str, Any]) -> None:
    _check_podman(Request())
    with pytest.raises(UsageError, match=option) as caught:
        _check_podman(Request(**given))
    assert "DOCKER_HOST" in str(caught.value.hint)
