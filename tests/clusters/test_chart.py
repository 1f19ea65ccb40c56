"""The chart on a real Kubernetes node, by Helm itself: installed, changed, and gone without a trace.

1.20 knows no Indexed Jobs and no reasons for failures, so a Job here has one node and no restarts, and several nodes
are a service, `kind: statefulset`. Indexed Jobs are those of `job show kubernetes`, as unit tests hold; the smoke test
of four nodes is one, lowered for 1.20.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clusters.conftest import script
from tests.clusters.lowering import lowered
from tests.clusters.releases import VERSIONS, Release, image_values
from tests.clusters.space import Space, is_ready
from tests.clusters.storage import served_by_git, volume
from tests.e2e.conftest import CPU, INIT
from tests.e2e.waiting import until
from tests.unit.charts.helm import CHART, merged, objects

SAYS = "print('these are the files of {}')\n"
# The unchanged values for production, without the disruption budgets of `policy/v1`, which 1.20 has not.
PRODUCTION = yaml.safe_load((CHART / "values-production.yaml").read_text())
SMOKE = {
    "the one example": {"mode": "distributed", "worldSize": 4},
    "production": merged(PRODUCTION, {"podDisruptionBudget": {"enabled": False}}),
}
each_helm = pytest.mark.parametrize("version", VERSIONS, ids=[f"helm {version}" for version in VERSIONS])


def texts(*names: str) -> dict[str, str]:
    """Scripts of these names, as the chart's values hold files."""
    return {name: script(name).read_text() for name in names}


def job(image: str, **more: Any) -> dict[str, Any]:
    """Values of a Job that this Kubernetes understands."""
    return {
        "image": image_values(image),
        "restarts": 0,
        "entrypoint": {"file": "say.py"},
        "files": {"say.py": SAYS.format("files")},
        "persistence": {"enabled": False},
        **more,
    }


def service(image: str, nodes: int, color: str, **more: Any) -> dict[str, Any]:
    return {
        "kind": "statefulset",
        "mode": "distributed" if nodes > 1 else "standalone",
        "worldSize": nodes,
        "image": image_values(image),
        "files": texts("meet.py", "stay.py"),
        "entrypoint": {"file": "stay.py"},
        "extraEnvVars": [{"name": "COLOR", "value": color}],
        "persistence": {"enabled": False},
        "timeouts": {"rendezvous": 120, "stop": 5},
        **more,
    }


def restarts(space: Space) -> list[int]:
    """Of each pod's container, by rank."""
    return [sum(each["restartCount"] for each in pod["status"].get("containerStatuses", ())) for pod in space.pods()]


def said_of(space: Space, reason: str) -> str:
    """Return the messages of the events with this reason, as `kubectl describe` shows them."""
    return "\n".join(each["message"] for each in space.find("events") if each["reason"] == reason)


@pytest.mark.parametrize("nodes", [1, 3], ids=["standalone", "distributed"])
def test_a_service_is_installed_and_changed_and_leaves_nothing(nodes: int, space: Space, built: dict[str, str]) -> None:
    def all_say(color: str) -> bool:
        pods = space.pods()
        return [is_ready(pod) for pod in pods] == [True] * nodes and all(
            color in space.read_output(pod) for pod in pods
        )

    release = Release(space=space)
    release.install(service(built[CPU], nodes, "blue"))
    until(lambda: all_say("color blue"), 120)
    release.upgrade(service(built[CPU], nodes, "green"))
    until(lambda: all_say("color green"), 240)
    release.uninstall()
    until(lambda: not space.left(), 60)
    until(lambda: not space.containers(), 60)


@each_helm
def test_a_job_exits_with_the_scripts_code_and_upgrades_rerun_it(
    version: int, space: Space, built: dict[str, str]
) -> None:
    """Of the default kind, an upgrade runs the changed job and deletes the previous one."""
    release = Release(space=space, version=version)
    ends = {"files": texts("end.py"), "extraEnvVars": [{"name": "COLOR", "value": "blue"}]}
    release.install(job(built[CPU], **ends, entrypoint={"file": "end.py", "args": [7, 0]}))
    (first,) = space.ends()
    assert first.code == 7
    assert "color blue, of 1" in first.log
    release.upgrade(job(built[CPU], **ends, entrypoint={"file": "end.py", "args": [0, 0]}))
    until(lambda: len(space.find("jobs")) == len(space.pods()) == 1, 60)
    (second,) = space.ends()
    assert second.code == 0
    release.uninstall()
    until(lambda: not space.left(), 60)


@pytest.mark.parametrize("case", SMOKE)
def test_without_a_script_four_nodes_test_the_image(case: str, space: Space, built: dict[str, str]) -> None:
    """No claim is bound here, since no storage makes volumes: the smoke test waits for none."""
    values = merged(SMOKE[case], {"image": image_values(built[CPU])})
    text = lowered(yaml.safe_dump_all(objects(values, space.name).values()))
    space.kubectl("apply", "--filename=-", stdin=text)
    ends = space.ends()
    assert [(each.rank, each.code) for each in ends] == [(rank, 0) for rank in range(4)], "".join(
        each.log for each in ends
    )
    (verdict,) = [json.loads(line) for line in ends[0].log.splitlines() if line.startswith("{")]
    assert (verdict["verdict"], verdict["figures"]["world"]) == ("passed", 4)
    assert [each["status"]["phase"] for each in space.find("persistentvolumeclaims")] == ["Pending"]


@pytest.mark.parametrize("first", ["a ConfigMap", "files", "git"])
def test_a_config_map_comes_before_files_and_these_before_git(
    first: str, space: Space, built: dict[str, str], tmp_path: Path
) -> None:
    script = tmp_path / "team/say.py"
    script.parent.mkdir()
    script.write_text(SAYS.format("git"))
    mapped = tmp_path / "say.py"
    mapped.write_text(SAYS.format("a ConfigMap"))
    space.kubectl("create", "configmap", "mine", f"--from-file={mapped}")
    with served_by_git(space.node, script.parent) as repository:
        clones = {"enabled": True, "repository": repository, "revision": "v1"}
        values: Mapping[str, Any] = {
            "configMap": "mine" if first == "a ConfigMap" else "",
            "cloneFilesFromGit": clones,
            **({"files": {}} if first == "git" else {}),
        }
        Release(space=space).install(job(built[CPU], **values))
        (end,) = space.ends()
    assert end.code == 0, end.log
    assert f"these are the files of {first}" in end.log


@pytest.mark.parametrize(("enabled", "code"), [(False, 1), (True, 0)], ids=["as it is", "volumePermissions"])
def test_a_claim_whose_volume_is_roots(enabled: bool, code: int, space: Space, built: dict[str, str]) -> None:
    """By the image of the chart's own default name, `volume-permissions`; without it the script cannot write."""
    with volume(space, "mine", owner=0) as folder:
        values = job(
            built[CPU],
            files=texts("write.py"),
            entrypoint={"file": "write.py"},
            persistence={"existingClaim": "mine"},
            volumePermissions={"enabled": enabled, "image": image_values(built[INIT])},
        )
        Release(space=space).install(values)
        (end,) = space.ends()
        assert end.code == code, end.log
        assert (folder / "saved").exists() == enabled


def test_a_killed_pod_of_a_service_restarts_with_its_group(space: Space, built: dict[str, str]) -> None:
    Release(space=space).install(service(built[CPU], 3, "blue"))
    until(lambda: space.ready() == [True] * 3, 120)
    before = [pod["metadata"]["uid"] for pod in space.pods()]
    space.kubectl("delete", "pod", space.pods()[1]["metadata"]["name"], "--grace-period=0", "--force")
    until(lambda: restarts(space) == [1, 0, 1] and space.ready() == [True] * 3, 180)
    after = [pod["metadata"]["uid"] for pod in space.pods()]
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False, True]


def test_a_pod_is_not_ready_before_all_nodes_have_come(space: Space, built: dict[str, str]) -> None:
    """The readiness probe, as it is by default; a quota keeps the second pod away.

    The liveness probe does not end what waits.
    """
    space.kubectl("create", "quota", "one", "--hard=pods=1")
    Release(space=space).install(service(built[CPU], 2, "blue"))
    until(lambda: "not ready: waiting" in said_of(space, "Unhealthy"), 120)
    assert space.ready() == [False]
    assert restarts(space) == [0]
    space.kubectl("delete", "quota", "one")
    space.kubectl("annotate", "statefulset", "--all", "tests/looked=again")  # else it tries again ever more rarely
    until(lambda: space.ready() == [True] * 2, 120)
    assert restarts(space) == [0, 0]


def test_a_liveness_probe_that_fails_starts_the_container_again(space: Space, built: dict[str, str]) -> None:
    """One of the user's own, since `health --live` is well as long as `run` lives."""
    probe = {
        "exec": {"command": ["test", "!", "-e", "/tmp/hangs"]}, "periodSeconds": 1, "failureThreshold": 2,
    }  # fmt: skip
    Release(space=space).install(service(built[CPU], 1, "blue", customLivenessProbe=probe))
    until(lambda: space.ready() == [True], 120)
    (pod,) = space.pods()
    space.kubectl("exec", pod["metadata"]["name"], "--", "sh", "-c", "touch /tmp/hangs; ls -A /tmp")
    until(lambda: "Liveness probe failed" in said_of(space, "Unhealthy"), 60)
    until(lambda: restarts(space)[0] >= 1, 90)
