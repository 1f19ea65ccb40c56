"""The option that chooses what runs the steps of a build."""

from dataclasses import dataclass

from torchbake.build.executor import Choice
from torchbake.commands._options import option


@dataclass(frozen=True, kw_only=True)
class WithExecutor:
    executor: Choice = option(
        "what runs the steps of a build. By default the engine's kind decides: BuildKit by docker buildx for Docker, "
        "podman for podman; buildah where there is no engine",
        default="auto",
    )
