"""The chart, rendered by Helm itself: its library runs in this process, without a cluster and without a network."""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import helm_python
import yaml

from torchbake.core.paths import TOOLKIT

CHART = TOOLKIT / "charts/pytorch"
RELEASE = "demo"
Objects = dict[tuple[str, str], Any]  # by kind and name
_LOADED = helm_python.Chart.load(CHART)


class _Strict(yaml.CSafeLoader):
    """A loader that refuses duplicate keys, as Kubernetes does."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"{node.start_mark}: a key is there twice: {keys}"
        return super().construct_mapping(node, deep)


def defaults() -> dict[str, Any]:
    matches: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return matches


def leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each parameter with its default, which may be an empty mapping."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def render(values: Mapping[str, Any], namespace: str = "team") -> dict[str, str]:
    """Render the chart: texts by the names of their templates."""
    return dict(_rendered(json.dumps(values), namespace))


@cache
def _rendered(values: str, namespace: str) -> dict[str, str]:
    texts = _LOADED.render(json.loads(values), name=RELEASE, namespace=namespace)
    return {name.removeprefix("pytorch/templates/"): text for name, text in texts.items() if text.strip()}


def objects(values: Mapping[str, Any], namespace: str = "team") -> Objects:
    """Return the objects that Helm sends to Kubernetes."""
    return by_name(text for name, text in render(values, namespace).items() if name.endswith(".yaml"))


def by_name(texts: Iterable[str]) -> Objects:
    """Parse the objects of rendered texts."""
    matches = [each for text in texts for each in yaml.load_all(text, _Strict) if each]
    names = {(each["kind"], each["metadata"]["name"]): each for each in matches}
    assert len(names) == len(matches)
    return names


def one(matches: Objects, kind: str) -> Any:
    (each,) = [each for (its, _), each in matches.items() if its == kind]
    return each


def pod(matches: Objects) -> Any:
    """Return the spec of a node's pod."""
    (owner,) = [each for each in matches.values() if each["kind"] in ("Job", "StatefulSet")]
    return owner["spec"]["template"]["spec"]


def container(matches: Objects) -> Any:
    (only,) = pod(matches)["containers"]
    return only


def env(matches: Objects) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in container(matches)["env"]}


def problem(values: Mapping[str, Any]) -> str:
    """Return Helm's message about values that it refuses."""
    try:
        render(values)
    except helm_python.HelmError as error:
        return str(error)
    raise AssertionError("these values are taken")


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge values mapping by mapping, as Helm does."""
    whole = dict[str, Any]()
    for layer in layers:
        for key, value in layer.items():
            both = isinstance(value, Mapping) and isinstance(whole.get(key), Mapping)
            whole[key] = merged(whole[key], value) if both else value
    return whole
