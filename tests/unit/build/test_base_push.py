"""A bootstrapped base in a registry: the same digest, sent once."""

import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.registries import MemoryRegistry, Store
from torchbake.build.base_image import BaseImage
from torchbake.build.base_push import push_base, pushed_name
from torchbake.errors import BaseError, RegistryError
from torchbake.matrix.spec import BaseSpec
from torchbake.oci.manifest import Blob
from torchbake.oci.reference import Repository
from torchbake.registry.transport import StatusError
from torchbake.store.layout import Layout
from torchbake.store.rootfs_image import write_rootfs_image

SPEC = BaseSpec(name="debian12", image="debian:bookworm-slim", suite="bookworm", python="3.11")
NAMESPACE = Repository(host="registry.example", path="acme")


@pytest.fixture
def base(tmp_path: Path) -> BaseImage:
    """A bootstrapped base of an empty folder."""
    with tarfile.open(tmp_path / "rootfs.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("etc"))
    layout = Layout(folder=tmp_path / "bases/debian12")
    digest = write_rootfs_image(tmp_path / "rootfs.tar", layout, created="2025-01-01T00:00:00Z", created_by="test")
    return BaseImage(name="debian12", image=SPEC.image, source="bootstrap", digest=digest, created="")


def test_a_base_has_its_digest_in_the_registry(base: BaseImage, tmp_path: Path) -> None:
    store = Store()
    reference = pushed_name(SPEC, base, NAMESPACE)
    assert str(reference) == f"registry.example/acme/debian12:bookworm-{base.digest[7:19]}@{base.digest}"
    manifest = Layout(folder=tmp_path / "bases/debian12").get(base.digest)
    assert push_base(base, reference, tmp_path, MemoryRegistry(store)) == sum(blob.size for blob in manifest.blobs)
    assert store.tags == {reference.tag: base.digest}
    assert store.manifests[base.digest].data == manifest.data
    assert push_base(base, reference, tmp_path, MemoryRegistry(store)) == 0


def test_only_a_bootstrapped_base_is_pushed(base: BaseImage) -> None:
    with pytest.raises(BaseError) as caught:
        pushed_name(SPEC, replace(base, source="registry"), NAMESPACE)
    assert f"debian:bookworm-slim@{base.digest}" in (caught.value.hint or "")


def test_a_login_without_the_right_is_named(base: BaseImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: MemoryRegistry, blob: Blob, path: Path, count: object = None) -> None:
        raise StatusError("registry.example answers 403 denied to POST x.", status=403)

    store = Store()
    monkeypatch.setattr(MemoryRegistry, "upload", refuse)
    with pytest.raises(RegistryError, match=r"acme/debian12 does not take it: .* 403") as caught:
        push_base(base, pushed_name(SPEC, base, NAMESPACE), tmp_path, MemoryRegistry(store))
    assert "push" in (caught.value.hint or "")
    assert not store.tags
