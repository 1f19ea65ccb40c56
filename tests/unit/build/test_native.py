"""The bases of a build: one, or for arm64 also that of the machine that builds."""

from dataclasses import replace

import pytest

from tests.unit.conftest import DEBIAN12, image, init_image
from torchbake.build import native
from torchbake.build.native import bases_for

ARM = replace(DEBIAN12, platform="linux/arm64")


@pytest.mark.parametrize("host", ["linux/amd64", "linux/arm64"])
def test_arm64_also_needs_the_base_of_this_machine(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "host_platform", lambda: host)
    assert bases_for(image()) == (DEBIAN12,)
    assert bases_for(image(base=ARM, platform="linux/arm64")) == (ARM, replace(DEBIAN12, platform=host))


def test_an_init_image_is_compiled_on_its_own_platform() -> None:
    assert bases_for(replace(init_image(), base=ARM, platform="linux/arm64")) == (ARM,)
