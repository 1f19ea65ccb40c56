"""The init image on real volumes: what it gives to the user, what it leaves alone, and what it needs."""

from collections.abc import Iterator
from dataclasses import dataclass

import docker
import pytest
from docker.models.volumes import Volume

from tests.images.checks import check
from tests.images.containers import Containers
from tests.images.subject import Subject
from tests.images.tell import some
from tests.images.volumes import Look, Put, Volumes, counts
from torchbake.engine.client import Engine
from torchbake.engine.runner import ContainerEnd
from torchbake.oci.labels import LABEL

NEEDS = ["CHOWN", "FOWNER", "DAC_OVERRIDE"]
LOST = "lost+found"
DATA = (
    Put(name="folder"),
    Put(name="folder/file", text="x", mode=0o644),
    Put(name="private", owner=5000, mode=0o700),
    Put(name="private/file", text="x", owner=5000, mode=0o600),
    Put(name="link", target="/elsewhere/file"),
    Put(name="dangling", target="/no/such/thing"),
    Put(name=LOST, mode=0o700),
    Put(name=f"{LOST}/file", text="x", mode=0o600),
    Put(name="mounted"),
)
OTHER = (Put(name="file", text="x", mode=0o644), Put(name="folder"))


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One run on a volume with a link to a second volume, and a third one mounted inside it."""

    data: Volume
    end: ContainerEnd
    after: dict[str, Look]
    elsewhere: dict[str, Look]
    mounted: dict[str, Look]


@pytest.fixture(scope="module")
def volumes(containers: Containers) -> Volumes:
    return Volumes(containers)


@pytest.fixture(scope="module")
def trial(volumes: Volumes) -> Iterator[Trial]:
    with volumes.make(DATA) as data, volumes.make(OTHER) as elsewhere, volumes.make(OTHER) as mounted:
        end = volumes.run("/data", at={"/data": data, "/elsewhere": elsewhere, "/data/mounted": mounted})
        yield Trial(
            data=data,
            end=end,
            after=volumes.look(data),
            elsewhere=volumes.look(elsewhere),
            mounted=volumes.look(mounted),
        )


def strangers(status: dict[str, Look]) -> list[str]:
    """Return the paths that root does not own."""
    return [f"{name or 'the volume'} is {one.shown}" for name, one in status.items() if one.uid != 0]


def applies(name: str, reason: str) -> pytest.MarkDecorator:
    return check(f"volume-permissions.{name}", reason, kinds=("init",))


@applies("writes", "after it, the images' user writes everywhere in a volume that was root's and others'")
def test_writes(trial: Trial, containers: Containers, client: docker.DockerClient, subject: Subject) -> None:
    uid = subject.user.uid
    assert trial.end.code == 0, f"exit {trial.end.code}: {trial.end.last_words}"
    ours = {name: one for name, one in trial.after.items() if not name.startswith(LOST) and name != "mounted"}
    wrong = [
        f"{name or 'the volume'} is {one.shown}" for name, one in ours.items() if not one.target and one.uid != uid
    ]
    assert not wrong, some(wrong)
    writer = smallest_image(client, containers)
    if writer is None:
        pytest.skip("the engine has no PyTorch image to write with; build one first")
    script = "echo y > /data/folder/file && echo y > /data/private/new && mkdir /data/new"
    mount = {str(trial.data.name): {"bind": "/data", "mode": "rw"}}
    end = containers.run("sh", "-c", script, ref=writer, volumes=mount, user=f"{uid}:0")
    assert end.code == 0, f"uid {uid} cannot write: {end.last_words}"


def smallest_image(client: docker.DockerClient, containers: Containers) -> str | None:
    """An image for the engine's own platform that runs as the user; the init image has nothing that writes."""
    images = sorted(Engine(client).list_images(filters={"label": f"{LABEL}.torch"}), key=lambda image: image["Size"])
    return next((name for image in images if containers.is_native(name := str(image["Id"]))), None)


@applies("idempotent", "a second run changes nothing, so that a restarted pod starts at once")
def test_idempotent(trial: Trial, volumes: Volumes) -> None:
    with volumes.make(DATA) as data:
        first = volumes.run("/data", at={"/data": data})
        before = volumes.look(data)
        second = volumes.run("/data", at={"/data": data})
        if second.code == 0 and not second.stderr:  # an engine on a busy machine can lose what a short container says
            second = volumes.run("/data", at={"/data": data})
        assert (first.code, second.code) == (0, 0), f"exit {first.code}, then {second.code}: {second.last_words}"
        assert counts(second).get("changed") == 0, f"the second run says: {second.last_words}"
        assert volumes.look(data) == before, "the second run changed files"


@applies("symlinks", "it follows no symlink: a volume must not be able to give away what is outside it")
def test_symlinks(trial: Trial) -> None:
    assert not strangers(trial.elsewhere), f"behind a link, {some(strangers(trial.elsewhere))}"
    targets = {put.name: put.target for put in DATA if put.target is not None}
    wrong = [name for name, target in targets.items() if name not in trial.after or trial.after[name].target != target]
    assert not wrong, f"no longer a link: {some(wrong)}"


@applies("lost-found", "lost+found stays root's: it is the file system's own")
def test_lost_found(trial: Trial) -> None:
    wrong = strangers({name: one for name, one in trial.after.items() if name.startswith(LOST)})
    assert not wrong, some(wrong)


@applies("filesystems", "it enters no other file system that is mounted inside the volume")
def test_filesystems(trial: Trial) -> None:
    inside = {name: one for name, one in trial.mounted.items() if name}
    assert not strangers(inside), f"in a mount inside it, {some(strangers(inside))}"


@applies("partial", "where it cannot change everything, it changes the rest, says what is left, and fails")
def test_partial(volumes: Volumes, subject: Subject) -> None:
    with volumes.make(DATA) as data:
        end = volumes.run("/data", at={"/data": data}, cap_drop=["DAC_OVERRIDE"])
        if not end.stderr:  # an engine on a busy machine can lose what a short container says
            end = volumes.run("/data", at={"/data": data}, cap_drop=["DAC_OVERRIDE"])
        after = volumes.look(data)
    assert after["private/file"].uid != subject.user.uid, "it changed what it cannot reach: this check proves nothing"
    assert end.code not in (0, 137), f"exit {end.code}, though private/file is still {after['private/file'].shown}"
    assert "private" in end.stderr, f"it does not name what is left: {end.last_words}"
    assert after["folder/file"].uid != 0, "it gave up the rest"


@applies("capabilities", f"{', '.join(NEEDS)} are all it needs, on a read-only root; without them it fails")
def test_capabilities(volumes: Volumes) -> None:
    hardened = {"cap_drop": ["ALL"], "security_opt": ["no-new-privileges"], "read_only": True}
    with volumes.make(DATA) as data:
        without = volumes.run("--mode", "g=u", "/data", at={"/data": data}, **hardened)
        end = volumes.run("--mode", "g=u", "/data", at={"/data": data}, **hardened, cap_add=NEEDS)
        after = volumes.look(data)
    assert end.code == 0, f"exit {end.code}: {end.last_words}"
    status = after["private/file"]  # whose it is now is for volume-permissions.writes to say
    assert (status.uid != 5000, status.mode) == (True, 0o660), f"private/file is {status.shown}"
    assert without.code != 0, "without any capability it claims to have done it"


@applies("system", "it refuses the root and system folders, whatever it is told")
def test_system(containers: Containers) -> None:
    ends = {path: containers.run(path) for path in ("/", "/etc")}
    wrong = [f"{path}: exit {one.code}" for path, one in ends.items() if one.code != 2]
    assert not wrong, some(wrong)
