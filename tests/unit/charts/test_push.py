"""A chart in a registry: its format is Helm's, a version is written once and signed, and validation reads it back."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.charts.helm import CHART
from tests.unit.charts.test_package import IMAGE, INIT, RELEASED, TAG
from tests.unit.registries import MemoryRegistry, MemorySigner, Store
from torchbake.charts.judge import problems
from torchbake.charts.package import ChartPackage, package
from torchbake.charts.push import push, tag_of
from torchbake.core.problem import unknown
from torchbake.errors import PublishError
from torchbake.oci.manifest import MANIFEST, Manifest
from torchbake.oci.reference import Repository
from torchbake.registry.cosign import NO_TRUST, NoCosign

CHARTS = Repository(host="ghcr.io", path="acme/charts/pytorch")
ITEMS = package(CHART, RELEASED)
WHERE = tag_of(ITEMS.version)


class Served:
    """A registry with the released images, one store for each repository."""

    def __init__(self) -> None:
        self.stores = {str(each.repository): Store(tags={each.tag: each.digest}) for each in (IMAGE, INIT)}
        self.signer = MemorySigner(store=self.store(CHARTS))
        for each in (IMAGE, INIT):
            self.signer.store.signed.add((self.signer.key, each.digest))

    def store(self, repository: Repository) -> Store:
        return self.stores.setdefault(str(repository), Store())

    def registry(self, repository: Repository) -> MemoryRegistry:
        registry = MemoryRegistry(self.store(repository))
        registry.repository = repository
        return registry

    def push(self, product: ChartPackage = ITEMS) -> tuple[Manifest, str]:
        return push(self.registry(CHARTS), product, self.signer)

    def problems(self, version: str = ITEMS.version) -> list[str]:
        return problems(self.registry(CHARTS), version, self.registry, self.signer)


def test_it_is_there_as_helm_puts_it() -> None:
    """helm.sh/docs/topics/registries: media types, the configuration is Chart.yaml, a tag has _ for +."""
    answer = Served()
    manifest, state = answer.push()
    store = answer.store(CHARTS)
    assert (state, store.tags) == ("pushed", {f"0.1.0_{TAG}": manifest.digest})
    assert manifest.config.media_type == "application/vnd.cncf.helm.config.v1+json"
    (layer,) = manifest.layers
    assert layer.media_type == "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
    assert store.blobs[layer.digest] == ITEMS.data
    assert json.loads(store.blobs[manifest.config.digest])["appVersion"] == TAG
    assert manifest.content["annotations"]["org.opencontainers.image.version"] == ITEMS.version
    assert ("ours", manifest.digest) in store.signed
    assert answer.problems() == []


def test_a_second_push_only_adds_a_missing_signature() -> None:
    answer = Served()
    manifest, _ = answer.push()
    answer.signer.store.signed.remove(("ours", manifest.digest))
    assert [problem.rpartition(" is ")[2] for problem in answer.problems()] == ["not signed"]
    assert answer.push() == (manifest, "unchanged")
    assert answer.problems() == []


def test_a_version_is_written_once() -> None:
    answer = Served()
    first, _ = answer.push()
    with pytest.raises(PublishError, match="exists with other content"):
        answer.push(replace(ITEMS, data=ITEMS.data + b"\0"))
    assert answer.store(CHARTS).tags[WHERE] == first.digest


def test_without_a_signer_it_is_pushed_and_not_signed() -> None:
    answer = Served()
    push(answer.registry(CHARTS), ITEMS, NoCosign(skip_reason=NO_TRUST))
    assert len(answer.problems()) == 1
    assert problems(answer.registry(CHARTS), ITEMS.version, answer.registry, NoCosign(skip_reason=NO_TRUST)) == []


def test_what_nobody_signed_is_not_read() -> None:
    """Its values could name an image of any host."""
    answer, requests = Served(), list[Repository]()

    def registry_of(repository: Repository) -> MemoryRegistry:
        requests.append(repository)
        return answer.registry(repository)

    manifest, _ = answer.push()
    answer.signer.store.signed.remove(("ours", manifest.digest))
    matches = problems(answer.registry(CHARTS), ITEMS.version, registry_of, answer.signer)
    assert matches == [f"{CHARTS}@{manifest.digest} is not signed"]
    assert requests == []


def test_a_failure_of_cosign_is_not_told_as_a_missing_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Served()
    manifest, _ = answer.push()
    monkeypatch.setattr(MemorySigner, "problem", lambda *_: unknown("cosign verify: no route to host."))
    assert answer.problems() == [f"{CHARTS}@{manifest.digest}: cosign verify: no route to host"]


def moved(served: Served) -> None:
    served.stores[str(IMAGE.repository)].tags[IMAGE.tag] = f"sha256:{'c' * 64}"


def is_missing(served: Served) -> None:
    served.stores[str(INIT.repository)].tags.clear()


def others(served: Served) -> None:
    served.signer.store.signed.remove(("ours", IMAGE.digest))


def repointed(served: Served) -> None:
    store = served.store(CHARTS)
    store.tags[WHERE] = push(served.registry(CHARTS), package(CHART, RELEASED, "9.9.9"), served.signer)[0].digest


def altered(**changes: Any) -> Callable[[Served], None]:
    """Another manifest under the chart's tag, signed too."""

    def work(answer: Served) -> None:
        store = answer.store(CHARTS)
        content = {**store.manifests[store.tags[WHERE]].content, **changes}
        manifest = Manifest(data=json.dumps(content).encode(), media_type=MANIFEST)
        answer.registry(CHARTS).put(manifest, WHERE)
        store.signed.add(("ours", manifest.digest))

    return work


def unpinned(served: Served) -> None:
    rolling = {place: replace(image, tag="latest", digest="") for place, image in RELEASED.items()}
    served.store(CHARTS).tags.clear()
    served.push(package(CHART, rolling, ITEMS.version))


def broken(data: bytes) -> Callable[[Served], None]:
    def work(answer: Served) -> None:
        answer.store(CHARTS).tags.clear()
        answer.push(replace(ITEMS, data=data))

    return work


def test_each_problem_of_a_pushed_chart_is_reported() -> None:
    for spoil, expected in (
        (moved, f"its image is ghcr.io/acme/pytorch:{TAG} as {IMAGE.digest}, which is sha256:ccc"),
        (is_missing, "which is not there"),
        (others, f"its image: ghcr.io/acme/pytorch@{IMAGE.digest} is not signed"),
        (repointed, "its Chart.yaml says version 9.9.9"),
        (altered(layers=[]), "is not a chart"),
        (unpinned, "its image is not pinned to an immutable tag and a digest"),
        (broken(b"no archive"), "holds no chart"),
        (broken(gzip.compress(b"no archive")), "holds no chart"),
        (lambda answer: answer.store(CHARTS).tags.clear(), "is not there"),
    ):
        answer = Served()
        answer.push()
        spoil(answer)
        assert any(expected in problem for problem in answer.problems()), (spoil, expected)
