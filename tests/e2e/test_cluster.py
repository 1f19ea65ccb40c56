"""Clusters of real containers: names, orders, exit codes and limits; nothing is left in any case."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.models.containers import Container

from tests.e2e.beside import is_anothers
from tests.e2e.conftest import CPU, ROOT, Completed, ref_of, torchbake
from tests.e2e.owned import OURS
from tests.e2e.owned import OWNER as OF_A_TEST
from tests.e2e.waiting import until
from torchbake.core.paths import OWN_TOOLBOX
from torchbake.engine.client import Engine
from torchbake.engine.containers import ORDERS, Cluster, ContainerNode, ContainerSettings, Order
from torchbake.engine.leftovers import remove_leftovers
from torchbake.engine.owner import has_ended
from torchbake.engine.runner import OWNER, RUN, ContainerEnd, remove

pytestmark = pytest.mark.engine

QUIET = {"TORCHBAKE_BANNER": "0"}
# Each node listens, and connects to every node by name.
MEET = """
import os, socket, sys, time
me, names = socket.gethostname(), os.environ["NAMES"].split()
line = socket.create_server(("0.0.0.0", 7000))
for name in names:
    end = time.monotonic() + 20
    while True:
        try:
            socket.create_connection((name, 7000), 5).close()
            break
        except OSError:
            if time.monotonic() > end:
                sys.exit(f"{me} does not reach {name}")
            time.sleep(0.05)
    print(name, flush=True)
for _ in names:
    line.accept()
"""
# Replaces the smoke of the images: rank 0 prints a passed line for each payload; ``body`` adds other behaviour.
FAKE = """\
#!/usr/bin/env python3
import json, os, sys, time
names = sys.argv[1 : sys.argv.index("--device")]
device = sys.argv[sys.argv.index("--device") + 1]
{body}
if os.environ.get("RANK", "0") == "0":
    for name in names:
        world = int(os.environ.get("WORLD_SIZE", "1"))
        line = {{"payload": name, "device": device, "verdict": "passed", "figures": {{"world": world}}}}
        print(json.dumps(line), flush=True)
"""

Toolbox = Callable[[str], Path]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def image(engine: docker.DockerClient) -> str:
    """The CPU image with a distinct digest, which identifies the containers of these tests."""
    return committed(engine, "torchbake-test/cluster", "ENV CLUSTER=1")


@pytest.fixture(scope="module")
def with_volume(engine: docker.DockerClient) -> str:
    """The same image, but each of its containers has an anonymous volume."""
    return committed(engine, "torchbake-test/volume", "VOLUME /data")


def committed(engine: docker.DockerClient, repository: str, change: str) -> str:
    container = engine.containers.create(ref_of(CPU))
    container.commit(repository, "1", changes=change)
    container.remove()
    return f"{repository}:1"


@pytest.fixture
def ours(engine: docker.DockerClient) -> Engine:
    return Engine(engine)


@pytest.fixture
def left(engine: docker.DockerClient, image: str, with_volume: str) -> Iterator[Callable[[], list[str]]]:
    """List the containers, networks and volumes that runs of this test have created and not removed."""
    conditions: dict[str, str | list[str] | bool] = {"label": RUN, "ancestor": [image, with_volume]}

    def look() -> set[str]:
        containers = engine.containers.list(all=True, filters=conditions, ignore_removed=True)
        networks = engine.networks.list(filters={"label": RUN})
        return {
            *(f"container {item.name}" for item in containers),
            *(f"network {item.name}" for item in networks if not is_anothers(item.attrs["Labels"].get(OWNER, ""))),
            *(f"volume {item.name}" for item in engine.volumes.list() if is_ours(engine, item)),
        }

    before = look()
    yield lambda: sorted(look() - before)
    assert look() <= before


def is_ours(engine: docker.DockerClient, volume: Any) -> bool:
    """Return True if an anonymous volume is ours, judged by its containers' labels; other tests' volumes have names."""
    if not re.fullmatch("[0-9a-f]{64}", volume.name):
        return False
    using = engine.containers.list(all=True, filters={"volume": volume.name}, ignore_removed=True)
    labels = [volume.attrs["Labels"] or {}, *(container.labels for container in using)]
    return not any(is_anothers(each.get(OWNER, "")) for each in labels)


@pytest.fixture
def toolbox(tmp_path: Path) -> Toolbox:
    """The real `run` with a smoke that the test writes."""

    def make(body: str) -> Path:
        folder = tmp_path / "toolbox"
        shutil.copytree(OWN_TOOLBOX, folder, ignore=shutil.ignore_patterns("payloads", "__pycache__"))
        (folder / "smoke").write_text(FAKE.format(body=body))
        (folder / "smoke").chmod(0o755)
        return folder

    return make


@pytest.fixture
def start() -> Iterator[Start]:
    """Start the command; what still runs at the end of the test is killed."""
    processes: list[subprocess.Popen[str]] = []

    def begin(*words: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "torchbake", "smoke", *words],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def nodes(number: int, code: str, **env: str) -> list[ContainerNode]:
    return [ContainerNode(command=("python", "-c", code), env={**QUIET, **env}) for _ in range(number)]


def checks_of(process: Completed) -> dict[str, Any]:
    assert process.stdout, process.stderr
    return {check["id"]: check for image in json.loads(process.stdout)["images"] for check in image["checks"]}


@pytest.mark.parametrize("order", [ORDERS[0], pytest.param(ORDERS[1], marks=pytest.mark.long)])
def test_nodes_meet_by_name_in_either_order(
    ours: Engine, image: str, left: Callable[[], list[str]], order: Order
) -> None:
    with Cluster(ours, image) as cluster:
        ends = cluster.run(nodes(3, MEET, NAMES="node0 node1 node2"), order=order, delay=1, timeout=40)
        assert len(left()) == 4  # three containers and their network
    assert [(node.name, node.code, node.stdout, node.stderr) for node in ends] == [
        (f"node{rank}", 0, "node0\nnode1\nnode2\n", "") for rank in range(3)
    ]
    began = [node.at - node.seconds for node in ends]
    lead = began[0] - max(began[1:]) if order == "workers-first" else min(began[1:]) - began[0]
    assert lead > 0.9
    assert left() == []


def test_every_code_is_judged_and_outputs_are_apart(ours: Engine, image: str) -> None:
    code = "import os, sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(int(os.environ['CODE']))"
    with Cluster(ours, image) as cluster:
        report = [nodes(1, code, CODE=value)[0] for value in ("0", "3", "0")]
        ends = cluster.run(report, delay=0, timeout=40)
    assert [node.code for node in ends] == [0, 3, 0]
    assert [node.good for node in ends] == [True, False, True]
    assert {(node.stdout, node.stderr) for node in ends} == {("out\n", "err\n")}


def test_a_node_that_does_not_end_is_killed_alone_and_named(ours: Engine, image: str) -> None:
    code = "import os, time; print('up', flush=True); time.sleep(float(os.environ['NAP']))"
    started = time.monotonic()
    with Cluster(ours, image) as cluster:
        first, second = cluster.run(
            [nodes(1, code, NAP=nap)[0] for nap in ("0", "600")], order="master-first", delay=0, timeout=15
        )
    assert time.monotonic() - started < 60
    assert (first.code, first.timed_out) == (0, False)
    assert (second.code, second.timed_out, second.good, second.stdout) == (137, True, False, "up\n")
    assert second.how.startswith("did not end within")


def test_memory_that_runs_out_is_named(ours: Engine, image: str) -> None:
    with Cluster(ours, image, ContainerSettings(memory="64m", network=False)) as cluster:
        late = "import time; time.sleep(1); x = bytearray(2**28)"  # an end at once may have no cause
        end = cluster.run(nodes(1, late), timeout=40)[0]
    assert end.out_of_memory
    assert end.how == "was killed for lack of memory"


def test_what_the_engine_cannot_start_is_a_result(ours: Engine, image: str, left: Callable[[], list[str]]) -> None:
    with Cluster(ours, image, ContainerSettings(user="no-such-user", network=False)) as cluster:
        end = cluster.run([ContainerNode(command=("true",))], timeout=40)[0]
    assert not end.good
    assert "no-such-user" in end.how
    assert left() == []


def test_how_containers_are_made(ours: Engine, image: str, tmp_path: Path) -> None:
    (tmp_path / "told").write_text("mounted")
    tmp_path.chmod(0o755)
    look = (
        "import os, pathlib, socket;"
        "print(os.getuid(), os.statvfs('/dev/shm').f_blocks * os.statvfs('/dev/shm').f_frsize // 2**20);"
        "print(pathlib.Path('/told/told').read_text(), os.access('/told', os.W_OK), os.access('/opt', os.W_OK));"
        "print(*(line.split()[1] for line in open('/proc/self/status') if line.startswith('CapBnd')));"
        "pathlib.Path('/tmp/x').write_text('');"
        "print(sorted(name for _, name in socket.if_nameindex()))"
    )
    box = ContainerSettings(
        user="4711:0", shm_size="128m", read_only=True, tmpfs=("/tmp",), mounts={str(tmp_path): "/told"},
        cap_drop=("ALL",), network=False,
    )  # fmt: skip
    with Cluster(ours, image, box) as cluster:
        end = cluster.run(nodes(1, look), timeout=40)[0]
    assert end.stdout.splitlines() == ["4711 128", "mounted False False", "0000000000000000", "['lo']"], end.stderr


def test_a_network_leads_nowhere_else(ours: Engine, image: str) -> None:
    routes = "print(sum(line.split()[1] == '00000000' for line in open('/proc/net/route')))"
    matches = []
    for box in (ContainerSettings(), ContainerSettings(open=True)):
        with Cluster(ours, image, box) as cluster:
            matches.append(cluster.run(nodes(1, routes), timeout=40)[0].stdout.strip())
    assert matches == ["0", "1"]


def test_an_exception_leaves_nothing(ours: Engine, with_volume: str, left: Callable[[], list[str]]) -> None:
    def fall() -> None:
        with Cluster(ours, with_volume) as cluster:
            cluster.start(nodes(2, "import time; time.sleep(600)"), delay=0)
            assert len(left()) == 2 + 1 + 2  # containers, network, volumes
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        fall()
    assert left() == []


def test_ctrl_c_while_containers_are_made_leaves_nothing(
    ours: Engine, image: str, left: Callable[[], list[str]]
) -> None:
    def run_until_it_is_interrupted(delay: float) -> None:
        before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        try:
            with Cluster(ours, image) as cluster:
                signal.setitimer(signal.ITIMER_REAL, delay)
                cluster.run(nodes(3, "import time; time.sleep(600)"), timeout=60)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    for delay in (0.005, 0.05, 0.2, 0.4):
        with pytest.raises(KeyboardInterrupt):
            run_until_it_is_interrupted(delay)
        assert left() == [], delay
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_many_who_clean_up_at_once_do_not_get_in_each_others_way(
    ours: Engine, image: str, left: Callable[[], list[str]]
) -> None:
    for _ in range(2):
        with Cluster(ours, image, run="cleaned-up-often") as cluster, ThreadPoolExecutor(6) as pool:
            cluster.start(nodes(4, "import time; time.sleep(600)"), delay=0)
            assert len(left()) == 5
            cleaning = [pool.submit(remove, ours, RUN, "cleaned-up-often") for _ in range(6)]
            assert max(future.result() for future in cleaning) >= 4
            assert left() == []


def of_run(engine: docker.DockerClient, run: str) -> list[Container]:
    return engine.containers.list(all=True, filters={"label": f"{RUN}={run}"}, ignore_removed=True)


def test_kept_containers_stay_and_are_nobodys_leftovers(ours: Engine, image: str, engine: docker.DockerClient) -> None:
    with Cluster(ours, image, run="kept-by-a-test", keep=True) as cluster:
        assert cluster.run(nodes(1, "print('here')"), timeout=40)[0].good
    try:
        assert remove_leftovers(ours) == 0
        containers = of_run(engine, "kept-by-a-test")
        assert [item.logs() for item in containers] == [b"here\n"]
    finally:
        for item in of_run(engine, "kept-by-a-test"):
            item.remove(v=True)
        for network in engine.networks.list(filters={"label": f"{RUN}=kept-by-a-test"}):
            network.remove()


def test_leftovers_are_known_by_their_dead_owner(ours: Engine, image: str, engine: docker.DockerClient) -> None:
    with Cluster(ours, image, run="a-living-one") as cluster:
        cluster.start(nodes(1, "import time; time.sleep(600)"), delay=0)
        (living,) = of_run(engine, "a-living-one")
        label = living.labels[OWNER]
        boot, space, pid, started = label.split("/")
        assert int(pid) == os.getpid()
        dead = f"{boot}/{space}/{pid}/{int(started) + 1}"  # the pid is taken again, by a younger process
        elsewhere = f"{boot}/pid:[1]/{pid}/1"  # in a container that shares the engine
        for owner, count in ((dead, 1), (elsewhere, 0), ("nonsense", 0)):
            stranger = engine.containers.create(image, labels={RUN: "a-test", OWNER: owner})
            try:
                assert remove_leftovers(ours) == count
            finally:
                if not count:
                    stranger.remove()
        assert cluster_lives(engine)


def test_the_next_run_removes_leftovers_of_a_killed_test_run(engine: docker.DockerClient) -> None:
    subnet = "10.249.50.0/24"
    boot, space, pid, started = OURS[OF_A_TEST].split("/")
    pool = docker.types.IPAMConfig(pool_configs=[docker.types.IPAMPool(subnet=subnet)])
    dead = {OF_A_TEST: f"{boot}/{space}/{pid}/{int(started) + 1}"}
    for labels in (dead, OURS):
        network = engine.networks.create(f"torchbake-test-{uuid.uuid4().hex[:8]}", ipam=pool, labels=labels)
        volume = engine.volumes.create(labels=labels)
        assert remove_leftovers(Engine(engine), OF_A_TEST) == (2 if labels == dead else 0)
    network.remove()
    volume.remove()


def test_a_killed_process_that_nobody_waited_for_is_no_owner() -> None:
    code = "from torchbake.engine.owner import owner_label; print(owner_label(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        label = process.stdout.readline().strip()
        assert not has_ended(label, same_machine=True)
        process.kill()
        until(lambda: has_ended(label, same_machine=True), 5)
        assert process.returncode is None


def cluster_lives(engine: docker.DockerClient) -> bool:
    return any(
        item.labels.get(OWNER, "").split("/")[2:3] == [str(os.getpid())]
        for item in engine.containers.list(ignore_removed=True)
    )


def test_the_command_runs_three_nodes_in_both_orders(
    image: str, toolbox: Toolbox, left: Callable[[], list[str]]
) -> None:
    folder = toolbox("")
    process = torchbake(
        "smoke", "--image", image, "--nodes", "3", "--nproc", "1", "--payload", "tensor", "--payload", "ddp",
        "--toolbox", str(folder), "--format", "json",
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    checks = checks_of(process)
    assert list(checks) == [
        "smoke.tensor[cpu]",
        "smoke.ddp[gloo,3x1,workers-first]",
        "smoke.ddp[gloo,3x1,master-first]",
    ]
    for name in list(checks)[1:]:
        assert checks[name]["figures"]["world"] == 3
        assert {node: values["code"] for node, values in checks[name]["figures"]["nodes"].items()} == {
            "node0": 0, "node1": 0, "node2": 0,
        }  # fmt: skip
    assert left() == []


def test_the_command_fails_with_the_workers_own_code_and_words(
    image: str, toolbox: Toolbox, left: Callable[[], list[str]]
) -> None:
    folder = toolbox("if os.environ.get('RANK') == '2': sys.exit('rank 2 has had enough')")
    process = torchbake(
        "smoke", "--image", image, "--nodes", "3", "--nproc", "1", "--payload", "ddp", "--order", "workers-first",
        "--toolbox", str(folder), "--format", "json",
    )  # fmt: skip
    assert process.returncode == 13
    check = checks_of(process)["smoke.ddp[gloo,3x1,workers-first]"]
    assert check["outcome"] == "failed"
    assert "rank 2 (node 2, local rank 0): exit code 1" in check["reason"]
    assert "rank 2 has had enough" in check["reason"]
    assert check["figures"]["nodes"]["node2"]["code"] == 1
    assert "Traceback" not in process.stderr
    assert left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_an_interrupted_run_leaves_nothing(
    with_volume: str, toolbox: Toolbox, start: Start, left: Callable[[], list[str]], number: signal.Signals
) -> None:
    folder = toolbox("time.sleep(600)")
    process = start("--image", with_volume, "--payload", "ddp", "--nproc", "1", "--toolbox", str(folder))
    until(lambda: len(left()) >= 2 + 1 + 2)
    started = time.monotonic()
    process.send_signal(number)
    time.sleep(0.3)
    process.send_signal(number)  # an impatient second one does not stop the cleaning up
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert time.monotonic() - started < 60
    assert left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_interrupted_checks_leave_nothing(with_volume: str, left: Callable[[], list[str]], number: int) -> None:
    words = ["-m", "pytest", "tests/images", "--image", with_volume, "--only", "smoke.ddp*", "-p", "no:cacheprovider"]
    with subprocess.Popen(
        [sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        until(lambda: len(left()) >= 2 + 1 + 2)
        process.send_signal(number)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 2, out
    assert "KeyboardInterrupt" in out
    assert left() == []


def test_the_next_run_cleans_up_a_killed_one_and_no_living_one(
    with_volume: str, toolbox: Toolbox, start: Start, left: Callable[[], list[str]]
) -> None:
    folder = toolbox("time.sleep(600 if 'ddp' in names else 0)")
    slow = ("--image", with_volume, "--payload", "ddp", "--nproc", "1", "--toolbox", str(folder))
    killed = start(*slow)
    until(lambda: len(left()) >= 2 + 1 + 2)
    orphans = left()
    assert len(orphans) == 5
    killed.kill()
    killed.wait()
    living = start(*slow)
    until(lambda: len(left()) >= 5 and not set(left()) & set(orphans))
    process = torchbake("smoke", "--image", with_volume, "--payload", "tensor", "--toolbox", str(folder))
    assert process.returncode == 0, process.stderr
    assert "had left" not in process.stderr
    assert len(left()) == 5
    living.send_signal(signal.SIGINT)
    living.communicate(timeout=30)
    assert left() == []


def test_ended_words() -> None:
    assert ContainerEnd(name="node0", code=143).how == "was ended by SIGTERM"
