"""The push of an image with code: what is sent, and what remains after a refusal or a kill at any request."""

import contextlib
import json
from datetime import date
from pathlib import Path

import pytest

from tests.unit.code.folders import FILES, ZSTD, image, layer_of, stored, write
from tests.unit.registries import MemoryRegistry, Store
from torchbake.code.push import CodeTarget, PushedCode, push_code
from torchbake.errors import RegistryError, UsageError
from torchbake.oci.layer_order import json_bytes
from torchbake.oci.manifest import INDEX, Blob, Manifest
from torchbake.oci.reference import Reference, Repository
from torchbake.registry.transport import StatusError
from torchbake.release.repository_view import Holdings

DAY = date(2026, 11, 28)


@pytest.fixture
def store() -> Store:
    return Store()


def push(
    store: Store, work: Path, reference: Reference, registry: MemoryRegistry | None = None, *, today: date = DAY,
    to: CodeTarget | None = None, platform: str = "",
) -> PushedCode:  # fmt: skip
    folder = work / "code"
    if not folder.exists():
        write(folder)
    return push_code(
        registry or MemoryRegistry(store), reference, lambda compression: layer_of(folder, work, compression),
        at="/job", work=work, today=today, to=to, platform=platform,
    )  # fmt: skip


def test_the_layer_the_config_and_a_tag_are_written(store: Store, tmp_path: Path) -> None:
    base = stored(store, *image())
    pushed = push(store, tmp_path, base)
    manifest = store.manifests[pushed.reference.digest]
    assert pushed.reference.tag == f"code-20261128-{pushed.reference.digest[7:19]}"
    assert store.tags[pushed.reference.tag] == pushed.reference.digest
    assert pushed.base.digest == store.tags["cpu"] != pushed.reference.digest
    assert {manifest.layers[-1].digest, manifest.config.digest} <= set(store.blobs)
    assert pushed.sent_bytes == manifest.layers[-1].size + manifest.config.size
    assert pushed.layer.files == len(FILES)


def test_the_same_content_is_sent_once(store: Store, tmp_path: Path) -> None:
    base = stored(store, *image())
    one, two, later = push(store, tmp_path, base), push(store, tmp_path, base), None
    assert (one.reference, two.sent_bytes) == (two.reference, 0)
    later = push(store, tmp_path, base, today=date(2026, 12, 1))
    assert (later.reference.digest, later.sent_bytes) == (one.reference.digest, 0)
    assert later.reference.tag.startswith("code-20261201-")


def test_the_code_alone_is_an_image_too_if_it_is_asked_for(store: Store, tmp_path: Path) -> None:
    base, to = stored(store, *image()), CodeTarget(registry=MemoryRegistry(store), alone=True)
    pushed = push(store, tmp_path, base, to=to)
    assert pushed.alone
    alone, whole = store.manifests[pushed.alone.digest], store.manifests[pushed.reference.digest]
    assert alone.layers == whole.layers[-1:]
    config = json.loads(store.blobs[alone.config.digest])
    assert (config["os"], config["architecture"]) == ("linux", "amd64")
    assert config["rootfs"]["diff_ids"] == [pushed.layer.layer.diff_id]
    assert store.tags[pushed.alone.tag] == pushed.alone.digest
    assert pushed.sent_bytes == whole.layers[-1].size + whole.config.size + alone.config.size
    again = push(store, tmp_path, stored(store, *image(3), tag="other"), to=to)
    assert (again.alone, again.reference != pushed.reference) == (pushed.alone, True)
    assert push(store, tmp_path, base).alone is None


def test_a_dry_run_sends_nothing(store: Store, tmp_path: Path) -> None:
    base = stored(store, *image())
    before = (dict(store.tags), set(store.blobs))
    registry = MemoryRegistry(store)
    planned = push(store, tmp_path, base, to=CodeTarget(registry=registry, dry_run=True))
    assert (dict(store.tags), set(store.blobs)) == before
    assert planned.reference == push(store, tmp_path, base).reference


def test_the_next_run_finishes_after_a_kill_at_any_request(tmp_path: Path) -> None:
    expected, at = "", 0
    while True:
        store, count = Store(), 0
        base = stored(store, *image())

        def message(method: str, _: str, at: int = at) -> None:
            nonlocal count
            if method in ("PUT", "POST"):
                count += 1
                if count > at:
                    raise KeyboardInterrupt

        try:
            result = push(store, tmp_path, base, MemoryRegistry(store, message=message))
        except KeyboardInterrupt:
            assert set(store.tags) == {"cpu"}, "a tag is written last"
        else:
            assert str(result.reference) == expected
            break
        expected = str(push(store, tmp_path, base).reference)
        at += 1
    assert at == 3  # the layer, the config, the tag


def test_a_kill_leaves_no_image_without_its_code_alone(tmp_path: Path) -> None:
    """A launcher that finds the image with code can pull the code alone too."""
    tags, at = list[int](), 0
    while not tags or tags[-1] < 3:
        store, count = Store(), 0
        base = stored(store, *image())

        def message(method: str, _: str, at: int = at) -> None:
            nonlocal count
            count += method in ("PUT", "POST")
            if count > at:
                raise KeyboardInterrupt

        with contextlib.suppress(KeyboardInterrupt):
            registry = MemoryRegistry(store, message=message)
            push(store, tmp_path, base, registry, to=CodeTarget(registry=registry, alone=True))
        tags.append(len(store.tags))
        whole = [manifest for manifest in store.manifests.values() if len(manifest.layers) > 2]
        assert not whole or len(store.tags) == 3
        at += 1
    assert tags == [1, 1, 1, 1, 2, 3]  # the layer, two configs, the code alone, the image


def test_two_edits_at_once_are_two_images(store: Store, tmp_path: Path) -> None:
    base = stored(store, *image())
    (tmp_path / "other").mkdir()
    other = write(tmp_path / "other/code", {**FILES, "train.py": "2"})
    second: list[PushedCode] = []

    def message(method: str, key: str) -> None:
        if method == "PUT" and not second:  # somebody else pushes at this moment
            second.append(push(store, other.parent, base))

    first = push(store, tmp_path, base, MemoryRegistry(store, message=message))
    assert {first.reference.tag, second[0].reference.tag, "cpu"} == set(store.tags)


@pytest.mark.parametrize(
    ("status", "codes", "words"),
    [(401, ("UNAUTHORIZED",), "docker login"), (403, ("DENIED",), "--to"), (405, ("UNSUPPORTED",), "--copy"),
     (404, ("NAME_UNKNOWN",), "Create"), (413, (), "refuses")],
)  # fmt: skip
def test_a_refusal_says_what_to_do(
    store: Store, tmp_path: Path, status: int, codes: tuple[str, ...], words: str
) -> None:
    base = stored(store, *image())

    def message(method: str, _: str) -> None:
        if method == "POST":
            raise StatusError("no", status=status, codes=codes)

    with pytest.raises(RegistryError) as error:
        push(store, tmp_path, base, MemoryRegistry(store, message=message))
    assert words in error.value.sentence
    assert "team/pytorch" in error.value.message
    assert set(store.tags) == {"cpu"}


@pytest.mark.parametrize(
    ("kind", "docker", "end"), [(ZSTD, False, "zstd"), (ZSTD, True, "gzip"), ("x+gzip", False, "gzip")]
)
def test_the_layer_is_compressed_as_the_others_are(
    store: Store, tmp_path: Path, kind: str, end: str, *, docker: bool
) -> None:
    pushed = push(store, tmp_path, stored(store, *image(kind=kind, docker=docker)))
    layer = store.manifests[pushed.reference.digest].layers[-1]
    assert layer.media_type.endswith(end)
    assert store.blobs[layer.digest].startswith(b"\x1f\x8b" if end == "gzip" else b"\x28\xb5\x2f\xfd")


def test_an_image_of_an_index_is_chosen(store: Store, tmp_path: Path) -> None:
    arm, amd = (image(count) for count in (2, 3))
    for each, tag in ((arm, "arm"), (amd, "amd")):
        stored(store, *each, tag)
    reference = index(store, {"linux/arm64": arm[0], "linux/amd64": amd[0], "unknown/unknown": amd[0]})
    for platform, base in (("", amd), ("linux/amd64", amd), ("linux/arm64", arm)):
        assert push(store, tmp_path, reference, platform=platform).base.digest == base[0].digest
    with pytest.raises(UsageError, match=r"linux/s390x") as error:
        push(store, tmp_path, reference, platform="linux/s390x")
    assert error.value.sentence.endswith("--platform linux/arm64 or --platform linux/amd64")
    assert push(store, tmp_path, index(store, {"linux/arm64": arm[0]})).base.digest == arm[0].digest


def index(store: Store, images: dict[str, Manifest]) -> Reference:
    entries = [
        {**Blob(digest=each.digest, size=len(each.data), media_type=each.media_type).descriptor,
         "platform": dict(zip(("os", "architecture"), where.split("/"), strict=True))}
        for where, each in images.items()
    ]  # fmt: skip
    content = {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}
    registry = MemoryRegistry(store)
    registry.put(Manifest(data=json_bytes(content), media_type=INDEX), "both")
    return Reference(repository=registry.repository, tag="both")


def test_what_is_no_image_gets_no_code(store: Store, tmp_path: Path) -> None:
    manifest, config = image()
    chart = json.loads(manifest.data)
    chart["config"]["mediaType"] = "application/vnd.cncf.helm.config.v1+json"
    store.blobs[manifest.config.digest] = config
    registry = MemoryRegistry(store)
    registry.put(Manifest(data=json_bytes(chart), media_type=manifest.media_type), "chart")
    with pytest.raises(UsageError, match="helm"):
        push(store, tmp_path, Reference(repository=registry.repository, tag="chart"))
    with pytest.raises(RegistryError, match="not there"):
        push(store, tmp_path, Reference(repository=registry.repository, tag="nothing"))


def test_releases_do_not_see_code(store: Store, tmp_path: Path) -> None:
    base = stored(store, *image())
    tags = ("2.10.0-cpu", "latest")
    for tag in ("2.10.0-cpu-r0", *tags):
        MemoryRegistry(store).put(image()[0], tag)
    before = Holdings(MemoryRegistry(store)).standing(tags[0], tags)
    assert before.newest
    push(store, tmp_path, base)
    assert Holdings(MemoryRegistry(store)).standing(tags[0], tags) == before


class Elsewhere(MemoryRegistry):
    """Another repository, of the same registry unless a host is given, which mounts layers or does not."""

    def __init__(self, store: Store, source: Store, *, mounts: bool, host: str = "one.example.com") -> None:
        super().__init__(store)
        self.source, self.mounts = source, mounts
        self.repository = Repository(host=host, path="ann/experiments")

    def mount(self, blob: Blob, source: str) -> bool:
        assert source == "team/pytorch"
        if self.mounts:
            self.store.blobs[blob.digest] = self.source.blobs[blob.digest]
        return self.mounts


@pytest.fixture
def full(store: Store) -> tuple[Store, Reference]:
    """A store that holds the layers of its image too."""
    manifest, config = image()
    store.blobs |= {blob.digest: str(number).encode() for number, blob in enumerate(manifest.layers)}
    return store, stored(store, manifest, config)


def test_layers_are_mounted_into_another_repository(full: tuple[Store, Reference], tmp_path: Path) -> None:
    other = Elsewhere(Store(), full[0], mounts=True)
    pushed = push(*_with(full, tmp_path), to=CodeTarget(registry=other))
    assert pushed.reference.repository == other.repository
    assert {blob.digest for blob in other.store.manifests[pushed.reference.digest].blobs} == set(other.store.blobs)
    assert set(full[0].tags) == {"cpu"}


@pytest.mark.parametrize("host", ["one.example.com", "two.example.com"])
def test_layers_that_cannot_be_mounted_are_copied_if_asked(
    full: tuple[Store, Reference], tmp_path: Path, host: str
) -> None:
    other = Elsewhere(Store(), full[0], mounts=False, host=host)
    with pytest.raises((RegistryError, UsageError)) as error:
        push(*_with(full, tmp_path), to=CodeTarget(registry=other))
    assert "--copy" in error.value.sentence
    assert other.store.blobs == {}
    pushed = push(*_with(full, tmp_path), to=CodeTarget(registry=other, copy=True))
    assert {blob.digest for blob in other.store.manifests[pushed.reference.digest].blobs} == set(other.store.blobs)
    assert {path.suffix for path in tmp_path.iterdir()} == {"", ".tar", ".json"}  # and no layer
    assert len([*tmp_path.iterdir()]) == 3


def _with(full: tuple[Store, Reference], work: Path) -> tuple[Store, Path, Reference]:
    return full[0], work, full[1]
