"""A step is shown by its stage, whether a build has one target or several."""

import pytest

from torchbake.build.buildkit_progress import short_name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("[builder 1/3] RUN /run/apt-install git", "[builder 1/3] RUN /run/apt-install git"),
        ("[2_10_0-cuda builder 1/3] RUN x", "[builder 1/3] RUN x"),
        (
            "[2_10_0-cuda stage-11  7/22] COPY --link --from=site /opt/venv /opt/venv",
            "[stage-11  7/22] COPY --link /opt/venv /opt/venv",
        ),
        ("[2_10_0-cuda base] FROM debian", "[base] FROM debian"),
        ("[internal] load build definition", "[internal] load build definition"),
        ("exporting to oci image format", "exporting to oci image format"),
        ("[site 2/2] RUN --mount=type=secret,id=ca     --mount=type=cache,id=uv python3", "[site 2/2] RUN python3"),
        ("RUN " + "x" * 100, "RUN " + "x" * 75 + "…"),
    ],
)
def test_a_step_is_named_by_its_stage_and_fits_on_a_line(name: str, shown: str) -> None:
    assert short_name(name).startswith(shown.removesuffix("…"))
    assert len(short_name(name)) <= 80
