"""Images that an engine took in and can use, or cannot."""

import pytest

from tests.unit.engines import Daemon
from torchbake.engine.image_check import check_image, pull_image
from torchbake.errors import EngineError

DIGEST = f"sha256:{'1' * 64}"


def test_the_container_that_checks_a_pulled_image_is_removed() -> None:
    daemon = Daemon()
    assert pull_image(daemon.engine, "ghcr.io/acme/pytorch", DIGEST, None) == DIGEST
    assert (daemon.started, daemon.boxes) == ([], {})


def test_a_pulled_image_that_cannot_be_used_loses_its_name() -> None:
    daemon = Daemon()
    daemon.unusable = "failed to extract layer"
    for key in (DIGEST, "cpu"):
        with pytest.raises(EngineError, match="failed to extract layer"):
            pull_image(daemon.engine, "ghcr.io/acme/pytorch", key, None)
    assert daemon.pictures == {}


def test_an_image_under_another_digest_is_refused() -> None:
    daemon = Daemon()
    daemon.hold(DIGEST, "acme/pytorch:cpu")
    for name in ("acme/pytorch:cpu", f"sha256:{'2' * 64}"):
        with pytest.raises(EngineError, match=r"under this digest|does not have the image"):
            check_image(daemon.engine, name)
