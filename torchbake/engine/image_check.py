"""Check that an engine can use an image after a load, a build or a pull.

Their success is not enough: Docker 28 reports success of a load even if it could not unpack the image. The broken image
has a name, labels and an ID like any other image.
"""

import contextlib
from collections.abc import Sequence

from torchbake.engine.client import Engine
from torchbake.engine.runner import Runner
from torchbake.errors import EngineError

_FULL = "no space left"
_HINT = "The engine's log says more. If it is all right now, run the command again."
_HINT_FULL = "Free disk space of the engine (docker system df), then run the command again."


def check_image(
    engine: Engine, image: str, *, layers: Sequence[str] | None = None, messages: Sequence[str] = ()
) -> None:
    """Check that the engine has an image with this ID and these layers, and can create a container of it.

    ``layers`` are digests of unpacked layers, lowest first, or None if not known. ``messages`` are the engine's reports
    during the load. Raises EngineError.
    """
    problem = _problem(engine, image, layers)
    if problem:
        words = f" It reported: {'; '.join(messages)}" if messages else ""
        full = _FULL in f"{problem}{words}".lower()
        raise EngineError(
            f"The engine took in {image}, but cannot use it: {problem.rstrip('.')}.{words}",
            hint=_HINT_FULL if full else _HINT,
        )


def pull_image(engine: Engine, repository: str, key: str, login: dict[str, str] | None) -> str:
    """Pull an image by a tag or a digest, check it, and return its ID. Raises EngineError.

    If the check fails, the engine does not keep the name.
    """
    engine.pull(repository, key, login)
    name = f"{repository}@{key}" if ":" in key else f"{repository}:{key}"
    try:
        return check_pulled(engine, name)
    except EngineError:
        with contextlib.suppress(EngineError):
            engine.remove([name])
        raise


def check_pulled(engine: Engine, name: str) -> str:
    """Check an image that was pulled by ``repository:tag`` or ``repository@digest``, and return its ID."""
    text = engine.find([name])
    if text is None:
        raise EngineError(f"{name} was pulled, but is not in the engine.", hint="See: docker images --digests")
    check_image(engine, text)
    return text


def _problem(engine: Engine, image: str, layers: Sequence[str] | None) -> str:
    """Return why the engine cannot use an image, or an empty text."""
    try:
        text = engine.find([image])
        if text != image:
            return f"it has {text} under this digest" if text else "it does not have the image"
        if layers is not None and (unpacked := engine.layers(image)) != tuple(layers):
            return f"it has {len(unpacked)} layers of {len(layers)}, or others"
        runner = Runner(engine)
        runner.remove(runner.container(image, ["/"]))  # some images have no command
    except EngineError as error:
        return f"no container can be created: {error.message}"
    return ""
