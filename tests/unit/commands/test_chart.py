"""`chart`: from released images to a chart in their registry, and back."""

from collections.abc import Sequence
from pathlib import Path

import helm_python
import pytest

from tests.small import Small
from tests.unit.conftest import SMALL
from tests.unit.registries import MemoryRegistry, MemorySigner, Store
from torchbake import cli
from torchbake.checks.verdict import Outcome
from torchbake.commands import chart as command
from torchbake.oci.reference import Repository
from torchbake.release.candidate import Candidate
from torchbake.release.publisher import Publisher
from torchbake.release.record import RecordedVerdict

Streams = pytest.CaptureFixture[str]
CPU = "2.13.0-cpu-runtime-debian12"
REGISTRY = ("--registry", "registry.example.com/acme")
VERDICT = RecordedVerdict(suite="a", started="now", outcome=Outcome.PASSED, counts={"passed": 1})


class Registries:
    """All repositories of a registry in memory, with one signer."""

    def __init__(self) -> None:
        self.stores: dict[str, Store] = {}
        self.keys = Store()

    def of(self, repository: Repository, *, plain_http: bool = False) -> MemoryRegistry:
        registry = MemoryRegistry(self.stores.setdefault(str(repository), Store()))
        registry.repository = repository
        return registry

    def publish(self, name: str, own_tag: str) -> None:
        small, labels = Small(), {"org.torchbake.id": own_tag, "org.torchbake.inputs": "a"}
        manifest = small.make(labels, [own_tag.encode()])
        value = Candidate(
            id=own_tag, digest=manifest.digest, labels=labels, tags=(own_tag,), verdict=VERDICT, waived={}
        )
        registry = self.of(Repository(host="registry.example.com", path=f"acme/{name}"))
        Publisher(registry).publish(value, small.supply, lambda _: None, lambda *_: None)


class Key(MemorySigner):
    """Signs what any of the repositories holds."""

    def sign(self, repository: Repository, digests: Sequence[str]) -> None:
        self.store.signed |= {(self.key, digest) for digest in digests}


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registries:
    (tmp_path / "matrix.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    registries = Registries()
    monkeypatch.setattr(command, "registry_of", registries.of)
    return registries


@pytest.fixture
def released(there: Registries) -> Registries:
    there.publish("pytorch", CPU)
    there.publish("volume-permissions", "1.0.0")
    return there


def report(capsys: Streams, *words: str, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert cli.main(["chart", *words, *REGISTRY]) == code
    streams = capsys.readouterr()
    return streams.out, streams.err


def test_a_package_has_the_newest_release_by_tag_and_digest(released: Registries, capsys: Streams) -> None:
    out, _ = report(capsys, "package", CPU)
    (line,) = out.splitlines()
    with helm_python.Chart.load(line) as chart:
        image = chart.values["image"]
        assert chart.version == f"0.1.0+{CPU}-r0"
    store = released.stores["registry.example.com/acme/pytorch"]
    assert (image["registry"], image["repository"], image["tag"]) == (
        "registry.example.com",
        "acme/pytorch",
        f"{CPU}-r0",
    )
    assert image["digest"] == store.tags[f"{CPU}-r0"]


def test_what_is_pushed_is_validated_until_it_changes(released: Registries, capsys: Streams) -> None:
    out, err = report(capsys, "push", CPU)
    assert out.startswith(f"registry.example.com/acme/charts/pytorch:0.1.0_{CPU}-r0@sha256:")
    assert f"helm install NAME oci://registry.example.com/acme/charts/pytorch --version 0.1.0+{CPU}-r0" in err
    assert "not signed: no --key and no --keyless was given" in err
    assert "is as it was pushed" in report(capsys, "validate", CPU)[0]
    store = released.stores["registry.example.com/acme/charts/pytorch"]
    store.tags.clear()
    assert "is not there" in report(capsys, "validate", CPU, code=15)[1]


def test_images_that_are_not_signed_are_in_no_signed_chart(
    released: Registries, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "signer_of", lambda _: Key(store=released.keys))
    assert "not signed" in report(capsys, "push", CPU, code=16)[1]
    assert "registry.example.com/acme/charts/pytorch" not in released.stores


def test_images_that_are_not_as_promised_are_so_for_validate_too(
    released: Registries, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "trust_of", lambda _: Key(store=released.keys))
    assert "not signed" in report(capsys, "validate", CPU, code=15)[1]
    released.stores.clear()
    assert f"has no release of {CPU}" in report(capsys, "validate", CPU, code=15)[1]


def test_a_chart_of_ones_own_is_packaged(released: Registries, capsys: Streams, tmp_path: Path) -> None:
    assert "is not a version" in report(capsys, "package", CPU, "--chart-version", "one", code=16)[1]
    assert "Chart.yaml cannot be read" in report(capsys, "package", CPU, "--chart", str(tmp_path), code=16)[1]
    assert (
        report(capsys, "package", CPU, "--chart-version", "2.0.0", "--output", "dist")[0] == "dist/pytorch-2.0.0.tgz\n"
    )


@pytest.mark.parametrize(
    ("words", "code", "output"),
    [
        ((), 2, "What is to be done: package, push, validate?"),
        (("package", "cuda"), 2, "A chart gets one image, but this selects 6"),
        (("package", CPU), 16, f"has no release of {CPU}"),
        (("package", CPU, "--keyless"), 2, "--keyless is an option of `chart push`"),
    ],
)
def test_what_cannot_be_is_told(
    words: tuple[str, ...], code: int, output: str, there: Registries, capsys: Streams
) -> None:
    assert output in report(capsys, *words, code=code)[1]
