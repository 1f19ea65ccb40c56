"""Jobs on a real Kubernetes node, version 1.20.2: as `job show` writes them, by kubectl.

That version has no Indexed Jobs, so the output of `job show kubernetes` is lowered for it. The output of
`job show kubernetes-1.20` is applied unchanged.
"""

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from entrypoints.pytorch.launch.launch_error import Code
from tests.clusters.lowering import lowered
from tests.clusters.space import SLOW, EndState, Space, rank_of
from tests.clusters.storage import served_by_git, volume
from tests.e2e.bare import Bare
from tests.e2e.conftest import CPU, torchbake
from tests.e2e.launchers.ended import Ended as Ran
from tests.e2e.launchers.job import check_cancelled, check_failed, check_met
from tests.e2e.launchers.run import command_of, job_run
from tests.e2e.waiting import until
from torchbake.jobs.targets import TARGETS

Files = Callable[..., str]
TO_THE_LETTER = "kubernetes-1.20"
each_target = pytest.mark.parametrize("target", [name for name in ("kubernetes", TO_THE_LETTER) if name in TARGETS])
each_kind = pytest.mark.parametrize("nodes", [1, 3], ids=["standalone", "distributed"])
NAME = "train"


def job_file(folder: Path, **job: Any) -> Path:
    path = folder / "job.yaml"
    whole = {"name": NAME, "image": CPU, "timeouts": {"rendezvous": 120, "stop": 5}, **job}
    path.write_text(json.dumps(whole))  # which is YAML too
    return path


def manifest(folder: Path, target: str, **job: Any) -> str:
    """Return the output of `job show`, for a Kubernetes whose images come from no registry."""
    process = torchbake("job", "show", target, str(job_file(folder, **job)), "--no-pin")
    assert process.returncode == 0, process.stderr
    return process.stdout if target == TO_THE_LETTER else lowered(process.stdout)


def submit(space: Space, text: str) -> float:
    """Apply a manifest; returns when."""
    began = time.time()
    space.kubectl("apply", "--filename=-", stdin=text)
    return began


def found_by(ends: list[EndState]) -> list[dict[str, Any]]:
    """Return the output of each rank, by rank, after a check that all ended well."""
    assert [each.code for each in ends] == [0] * len(ends), "\n".join(each.log for each in ends)[-3000:]
    lines = [line for each in ends for line in each.log.splitlines() if line.startswith("{")]
    return sorted((json.loads(line) for line in lines), key=lambda matches: int(matches["rank"]))


@each_target
@each_kind
def test_a_jobs_exit_code_arrives(target: str, nodes: int, space: Space, tmp_path: Path, files: Files) -> None:
    """Of several nodes the last fails, and every pod ends with its code."""
    text = manifest(
        tmp_path, target, nodes=nodes, files={"folder": files("end.py")}, script="end.py", args=["7", str(nodes - 1)],
        env={"COLOR": "a $(dark) blue"}, **no_restarts(target),
    )  # fmt: skip
    submit(space, text)
    ends = space.ends()
    assert [(each.rank, each.code) for each in ends] == [(rank, 7) for rank in range(nodes)]
    assert f"color a $(dark) blue, of {nodes}" in ends[-1].log


@each_target
def test_three_nodes_train_together(target: str, space: Space, tmp_path: Path, files: Files) -> None:
    text = manifest(
        tmp_path, target, nodes=3, files={"folder": files("fit.py")}, script="fit.py", resources={"memory": "2Gi"}
    )
    began = submit(space, text)
    matches = found_by(space.ends())
    assert [(each["rank"], each["world"], each["sum"]) for each in matches] == [(rank, 3, 3) for rank in range(3)]
    assert all(each["falls"] for each in matches)
    assert len({each["parameters"] for each in matches}) == 1
    first = min(each["reduced"] for each in matches)
    print(f"\n{target}: {first - began:.1f} s from kubectl to the first all_reduce.")


@each_target
def test_a_pod_that_is_ended_comes_again_and_its_group_with_it(
    target: str, space: Space, tmp_path: Path, files: Files
) -> None:
    if target == TO_THE_LETTER:
        pytest.skip("it starts no pod again: such a Job cannot tell a lost node from a failed script")
    with volume(space, "mine", owner=1001) as folder:
        text = manifest(
            tmp_path, target, nodes=3, files={"folder": files("meet.py", "meet_again.py")}, script="meet_again.py",
            restarts=1, volumes=[{"claim": "mine", "mountPath": "/data"}],
        )  # fmt: skip
        submit(space, text)
        until(lambda: space.ready() == [True] * 3, 90)
        lost = next(pod["metadata"]["name"] for pod in space.pods() if rank_of(pod) == 1)
        (folder / "over").touch()
        space.kubectl("delete", "pod", lost, "--wait=false")
        ends = space.ends()
    lasts = {each.rank: each for each in ends}
    assert [lasts[rank].code for rank in range(3)] == [0, 0, 0], "\n".join(each.log for each in ends)[-3000:]
    firsts = {each.rank: each.code for each in reversed(ends)}
    assert {firsts[0], firsts[2]} <= {Code.NODE_LOST, 128 + signal.SIGTERM}


@each_kind
def test_files_of_a_config_map_that_is_there(nodes: int, space: Space, tmp_path: Path, files: Files) -> None:
    space.kubectl("create", "configmap", "mine", f"--from-file={files('meet.py', 'end.py')}")
    script = {"script": "meet.py"} if nodes > 1 else {"script": "end.py", "args": ["0", "0"]}
    text = manifest(tmp_path, "kubernetes", nodes=nodes, files={"configMap": "mine"}, env={"COLOR": "blue"}, **script)
    submit(space, text)
    matches = found_by(space.ends())
    assert [(each["rank"], each["sum"]) for each in matches] == ([(rank, 3) for rank in range(3)] if nodes > 1 else [])


def test_files_of_a_git_repository(space: Space, tmp_path: Path, files: Files) -> None:
    with served_by_git(space.node, Path(files("meet.py"))) as repository:
        text = manifest(
            tmp_path, "kubernetes", nodes=3, files={"git": {"repository": repository, "revision": "v1"}},
            script="meet.py",
        )  # fmt: skip
        submit(space, text)
        assert [each["sum"] for each in found_by(space.ends())] == [3] * 3


@pytest.mark.parametrize(
    ("kind", "lines", "code"),
    [("hostPath", {}, 1), ("hostPath", {"permissions": "fix"}, 0), ("local", {}, 0)],
    ids=["as it is, it cannot be written", "permissions: fix", "of a kind to which Kubernetes applies fsGroup"],
)
def test_a_claim_whose_volume_is_roots(
    kind: str, lines: dict[str, str], code: int, *, space: Space, tmp_path: Path, files: Files
) -> None:
    with volume(space, "mine", owner=0, kind=kind) as folder:
        text = manifest(
            tmp_path, "kubernetes", files={"folder": files("write.py")}, script="write.py", restarts=0,
            volumes=[{"claim": "mine", "mountPath": "/data", **lines}],
        )  # fmt: skip
        submit(space, text)
        (end,) = space.ends()
        assert end.code == code, end.log
        assert (folder / "saved").exists() == (code == 0)
        assert ("PermissionError" in end.log) == (code != 0)


@each_target
def test_deletion_in_the_midst_leaves_nothing(target: str, space: Space, tmp_path: Path, files: Files) -> None:
    text = manifest(
        tmp_path, target, nodes=3, files={"folder": files("meet.py", "meet_again.py")}, script="meet_again.py",
        volumes=[{"size": "1Gi", "mountPath": "/data", "storageClass": "tests"}],
    )  # fmt: skip
    with volume(space, None, owner=1001):
        submit(space, text)
        until(lambda: space.ready() == [True] * 3, 90)
        assert space.containers()
        space.kubectl("delete", "--filename=-", stdin=text)
        until(lambda: not space.left(), 60)
        until(lambda: not space.containers(), 180)  # a kubelet clears what has ended once a minute


def with_kubectl(space: Space, folder: Path, env: Mapping[str, str]) -> dict[str, str]:
    """An environment in whose PATH kubectl sees this namespace; the command is made in ``folder``."""
    command_of("kubectl", shlex.join(space.command()), folder)
    return {**env, "PATH": f"{folder}:{env['PATH']}"}


@pytest.fixture
def by_run(space: Space, tmp_path: Path, files: Files) -> Callable[..., Ran]:
    """`job run` of a script on three nodes, with the kubectl that sees this namespace; nothing of it is left."""
    env = with_kubectl(space, tmp_path / "bin", os.environ)

    def run(script: str, *args: str, interrupt_after: int | None = None) -> Ran:
        file = job_file(tmp_path, nodes=3, files={"folder": files(script)}, script=script, args=args)
        ran = job_run(TO_THE_LETTER, file, env, "--no-pin", interrupt_after=interrupt_after)
        assert not space.left()  # a pod goes after its containers have ended
        return ran

    return run


def test_job_run_shows_all_nodes(by_run: Callable[..., Ran]) -> None:
    check_met(by_run("meet.py"))


def test_job_run_ends_as_the_rank_that_fails(by_run: Callable[..., Ran]) -> None:
    check_failed("job run, kubernetes", by_run("leave.py", "2", "7"))


def test_job_run_cancels_the_job_by_ctrl_c(by_run: Callable[..., Ran]) -> None:
    check_cancelled(by_run("save.py", interrupt_after=3))


def test_an_example_by_the_line_of_its_readme(space: Space, tmp_path: Path) -> None:
    """nox alone, and kubectl. The job says how old the cluster is; its image is not pinned: no registry has it."""
    bare = Bare(folder=tmp_path / "bare")
    bare.make()
    example = bare.tree / "examples/mnist"
    (line,) = (each.strip() for each in (example / "README.md").read_text().splitlines() if "| kubectl apply" in each)
    with (example / "job.yaml").open("a") as file:
        file.write('kubernetes: {api: "1.20"}\n')
    process = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line.replace("job.yaml", "job.yaml --no-pin")], cwd=bare.tree,
        env=with_kubectl(space, tmp_path / "bin", bare.env()), capture_output=True, text=True, timeout=SLOW,
        check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    (end,) = space.ends()
    assert end.code == 0, end.log
    assert "recognised" in end.log


def no_restarts(target: str) -> dict[str, int]:
    """1.20 starts again whatever failed, and the target that is made for it never does."""
    return {} if target == TO_THE_LETTER else {"restarts": 0}
