"""The executor of a build: the program that runs the steps of a Dockerfile."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from torchbake.build.buildah import Buildah
from torchbake.engine.capability import Capabilities, Need, require
from torchbake.errors import UsageError

Executor: TypeAlias = Literal["buildx", "buildah", "podman"]
Choice: TypeAlias = Literal["auto", Executor]


def executor_of(choice: Choice, engine: Capabilities | None) -> Executor:
    """Choose the executor by the engine: BuildKit for Docker, podman for podman, buildah if there is no engine.

    Raises UsageError if BuildKit is chosen and no Docker engine runs it.
    """
    if choice == "auto":
        return "buildah" if engine is None else "podman" if engine.podman else "buildx"
    if choice == "buildx" and (engine is None or engine.podman):
        why = "--no-engine asks none" if engine is None else "this engine is podman"
        raise UsageError(
            f"--executor buildx builds by a Docker engine, and {why}.", hint="Give --executor buildah, or leave it out."
        )
    return choice


def buildah_of(executor: Executor, engine: Capabilities | None) -> Buildah | None:
    """Return the program of an executor, which is checked; None for BuildKit. Raises EngineError."""
    if executor == "buildx" or (engine and engine.podman):
        assert engine
        require(engine, Need.BUILD)
    if executor == "buildx":
        return None
    program = Buildah(program=executor)
    if executor == "podman" and engine and engine.podman:
        program = Buildah(program=executor, address=engine.address.host, engine_version=engine.version)
    program.check()
    return program


def check_options(executor: Executor, options: Mapping[str, object]) -> None:
    """Check that no option of BuildKit is given to another executor. Raises UsageError."""
    for option in (name for name, value in options.items() if value and executor != "buildx"):
        raise UsageError(
            f"{option} is an option for BuildKit, and {executor} builds these images.",
            hint=f"Leave out {option}; or name a Docker engine by DOCKER_HOST, and give --executor buildx.",
        )
