"""What each launcher would set in the nodes' containers, given the manifest of a target."""

import re
import shlex
from collections.abc import Callable, Mapping

import yaml

from torchbake.jobs.task import Task

Env = Mapping[str, str]


def of_docker(text: str, task: Task) -> list[Env]:
    """`docker run --env`, in the order of nodes: the script starts node 0 last."""
    envs = list[Env]()
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if "--name" not in words:
            continue
        given = [words[place + 1] for place, word in enumerate(words) if word == "--env"]
        envs.append(dict(word.split("=", 1) for word in given if "=" in word))
    return envs[::-1]


def of_compose(text: str, task: Task) -> list[Env]:
    """compose fills in what `$` begins; `$$` is one."""
    services = yaml.safe_load(text)["services"]
    plain = {name: node["environment"] for name, node in services.items() if "environment" in node}
    return [
        {name: re.sub(r"\$\{(\w+):\?[^}]*\}", r"value of \1", value).replace("$$", "$") for name, value in env.items()}
        for env in plain.values()
    ]


LAUNCHERS: dict[str, Callable[[str, Task], list[Env]]] = {"docker": of_docker, "compose": of_compose}
# Where node 0 is for the others, when it is not the port that the job says: what a launcher decides by itself.
MASTERS = {"docker": "mnist-0", "compose": "mnist-0"}
PORTS: dict[str, int] = {}
