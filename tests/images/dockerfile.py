"""What a rendered Dockerfile promises of its image: the settings of its last stage."""

import json
import re
import shlex
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Promise:
    """An image's settings. A label whose value is ``${…}`` is filled in by the build."""

    user: str = ""
    workdir: str = "/"
    entrypoint: list[str] = field(default_factory=list)
    cmd: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    ports: set[str] = field(default_factory=set)
    volumes: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)  # HEALTHCHECK, ONBUILD, SHELL, STOPSIGNAL


def promise_of(dockerfile: str) -> Promise:
    """Read the last stage of a Dockerfile that torchbake rendered."""
    promise = Promise()
    for line in re.sub(r"\\\n\s*", " ", dockerfile).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            promise = Promise()
        elif word in ("ENV", "LABEL"):
            pairs = [pair.partition("=") for pair in shlex.split(rest)]
            (promise.environment if word == "ENV" else promise.labels).update({key: value for key, _, value in pairs})
        elif word in ("ENTRYPOINT", "CMD"):
            setattr(promise, word.lower(), json.loads(rest))
        elif word in ("USER", "WORKDIR"):
            setattr(promise, word.lower(), rest)
        elif word == "EXPOSE":
            promise.ports |= {port if "/" in port else f"{port}/tcp" for port in rest.split()}
        elif word == "VOLUME":
            promise.volumes |= set(json.loads(rest) if rest.startswith("[") else rest.split())
        elif word in ("HEALTHCHECK", "ONBUILD", "SHELL", "STOPSIGNAL"):
            promise.others.add(word)
    return promise
