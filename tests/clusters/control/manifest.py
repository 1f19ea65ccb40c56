"""StatefulSets that jobs are compared with: a plain one, and one in the form of common charts."""

from pathlib import Path

import yaml

PLAIN = Path(__file__).with_name("statefulset.yaml")
# The defaults that those charts' parameters have.
_PROBE = {"initialDelaySeconds": 5, "periodSeconds": 5, "successThreshold": 1, "failureThreshold": 5}
_PROBES = {
    kind: {"exec": {"command": ["python", "-c", "import torch; torch.__version__"]}, "timeoutSeconds": limit, **_PROBE}
    for kind, limit in (("livenessProbe", 5), ("readinessProbe", 1))
}


def manifest(image: str, script: str, *, as_charts: bool) -> str:
    """Runs a script, with its arguments, of the ConfigMap `scripts`, on the claim `data`.

    The charts add probes, and a shell that sleeps when the script has ended, so that the pod stays.
    """
    service, group = yaml.safe_load_all(PLAIN.read_text())
    (container,) = group["spec"]["template"]["spec"]["containers"]
    container["image"] = image
    next(each for each in container["env"] if each["name"] == "SCRIPT")["value"] = script
    if as_charts:
        shell, option, line = container["command"]
        container["command"] = [shell, option, line.removeprefix("exec ") + "sleep infinity\n"]
        container |= _PROBES
    return yaml.safe_dump_all([service, group], sort_keys=False)
