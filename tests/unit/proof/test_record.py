"""Records of images that were built, tested and released: their worth for later images, and their page."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.build.test_prepare import job
from tests.unit.builds import RUNTIME, small_project
from tests.unit.conftest import SMALL
from torchbake.build.inputs import toolkit_file
from torchbake.cli import main
from torchbake.commands.prove import _digests, _read, _states
from torchbake.core.paths import TOOLKIT
from torchbake.errors import CheckError
from torchbake.matrix.expand import expand
from torchbake.matrix.model import validate_matrix
from torchbake.matrix.project import load_project
from torchbake.matrix.spec import Additions, ImageSpec, OwnFile, Spec
from torchbake.matrix.yaml_source import parse_document
from torchbake.proof.record import (
    Digests,
    Proof,
    ProofState,
    Seconds,
    files_digest,
    format_proofs,
    lock_digest,
    page,
    parse_proofs,
    state_of,
)

FILES, LOCK = "sha256:" + "a" * 64, "sha256:" + "c" * 64


@pytest.fixture(scope="module")
def specs() -> tuple[Spec, ...]:
    document = parse_document(SMALL, Path("matrix.yaml"))
    return expand(validate_matrix(document), document).specs


def proof(name: str, **facts: object) -> Proof:
    values = {
        "id": name, "files": FILES, "lock": LOCK, "revision": "c0ffee", "tested": "2026-11-21T10:00:00+00:00",
        "digest": "sha256:" + "b" * 64, "tag": f"{name}-r0", "counts": {"passed": 64, "failed": 0, "not-run": 1},
        "not_run": {"smoke.nccl": "there is no GPU"}, "compressed_bytes": 246_300_000,
        "uncompressed_bytes": 900_000_000, "seconds": Seconds(build=61.2, test=57, publish=1.7),
    }  # fmt: skip
    return Proof.model_validate(values | facts)


def test_a_record_survives_being_written_and_read() -> None:
    proofs = {name: proof(name) for name in ("b", "a")}
    text = format_proofs(proofs.values())
    assert parse_proofs(text, "images/proofs.json") == proofs
    assert format_proofs(parse_proofs(text, "x").values()) == text  # whatever the order was


@pytest.mark.parametrize("text", ["", "[{}]", "null", '[{"id": 1}]', '[{"id": "a", "surplus": 1}]', "\x00"])
def test_a_damaged_file_of_records_is_named(text: str) -> None:
    with pytest.raises(CheckError, match=r"images/proofs.json is not valid"):
        parse_proofs(text, "images/proofs.json")


def test_a_record_counts_for_the_files_that_it_was_made_of_alone() -> None:
    now = Digests(files=FILES, lock=LOCK)
    assert state_of(None, now) is ProofState.MISSING
    assert state_of(proof("a"), now) is ProofState.PASSED
    assert state_of(proof("a", problem="test: libraries.ldd"), now) is ProofState.FAILED


def test_a_record_of_the_same_lock_names_changed_shared_inputs() -> None:
    shared, own = Digests(files="sha256:other", lock=LOCK), Digests(files="sha256:other", lock="sha256:other")
    assert state_of(proof("a"), shared) is ProofState.EARLIER
    assert state_of(proof("a"), own) is ProofState.STALE
    assert state_of(proof("a", problem="test: libraries.ldd"), shared) is ProofState.STALE
    assert state_of(proof("a", lock=""), Digests(files="sha256:other", lock=lock_digest(""))) is ProofState.STALE
    assert lock_digest("# of 2026\ntorch==2\n    # via y\n") == lock_digest("torch==2\n") != lock_digest("torch==3\n")


def test_the_digest_follows_dockerfile_lock_and_trim_rules(
    specs: tuple[Spec, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = next(spec for spec in specs if spec.kind == "pytorch")
    digest = files_digest(spec, dockerfile="FROM x", lock_text="torch==2")
    assert files_digest(spec, dockerfile="FROM y", lock_text="torch==2") != digest
    assert files_digest(spec, dockerfile="FROM x", lock_text="torch==3") != digest

    def changed(name: str) -> str:
        return toolkit_file(name) + ("# another line" if name == which else "")

    monkeypatch.setattr("torchbake.proof.record.toolkit_file", changed)
    for which, decides in {
        "layers/trim.toml": True,
        "layers/wheels/trim.py": True,
        "entrypoints/pytorch/run": False,
    }.items():
        assert (files_digest(spec, dockerfile="FROM x", lock_text="torch==2") != digest) is decides, which


def test_labels_and_comments_decide_no_package(specs: tuple[Spec, ...]) -> None:
    spec = next(spec for spec in specs if spec.kind == "pytorch")
    dockerfile = 'FROM x\n# why\nLABEL a="${A}" \\\n      b="1"\nRUN y\n'
    digest = files_digest(spec, dockerfile=dockerfile, lock_text="# inputs: x\ntorch==2\n    # via y\n")
    same = files_digest(spec, dockerfile='FROM x\nLABEL a="2"\nRUN y\n', lock_text="torch==2\n")
    assert digest == same
    assert files_digest(spec, dockerfile="FROM x\nRUN z\n", lock_text="torch==2\n") != digest


def test_own_files_and_what_puts_them_there_decide_too(
    specs: tuple[Spec, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = next(spec for spec in specs if isinstance(spec, ImageSpec))
    own = replace(plain, own=Additions(files=(OwnFile(source="a", target="/a"),)))
    digests = [files_digest(spec, dockerfile="FROM x", lock_text="", own=("a",)) for spec in (plain, own)]
    assert files_digest(plain, dockerfile="FROM x", lock_text="", own=("b",)) != digests[0]
    monkeypatch.setattr(
        "torchbake.proof.record.toolkit_file", lambda name: toolkit_file(name) + name.endswith("own-files") * "#"
    )
    changed = [files_digest(spec, dockerfile="FROM x", lock_text="", own=("a",)) for spec in (plain, own)]
    assert [one != other for one, other in zip(digests, changed, strict=True)] == [False, True]


def test_an_own_file_that_changed_makes_a_record_stale(tmp_path: Path) -> None:
    matrix = small_project(tmp_path / "project").root / "matrix.yaml"
    (matrix.parent / "a.txt").write_text("a")
    own = "    files: [{source: a.txt, target: /etc/a.txt}]\n"
    matrix.write_text(matrix.read_text().replace("    accelerator: cpu\n", f"    accelerator: cpu\n{own}"))
    project = load_project(matrix)
    job(project)
    spec = next(spec for spec in project.expansion.specs if spec.id == RUNTIME)
    before = _digests(project, spec).files
    assert _digests(project, spec).files == before
    (matrix.parent / "a.txt").write_text("b")
    assert _digests(project, spec).files != before


def test_an_init_image_is_its_program(specs: tuple[Spec, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    spec = next(spec for spec in specs if spec.kind == "init")
    digest = files_digest(spec, dockerfile="FROM x", lock_text="")
    monkeypatch.setattr(
        "torchbake.proof.record.toolkit_file", lambda name: toolkit_file(name) + name.endswith(".c") * "//"
    )
    assert files_digest(spec, dockerfile="FROM x", lock_text="") != digest


def test_the_page_has_a_row_for_each_image_with_its_failure(specs: tuple[Spec, ...]) -> None:
    first, second, *others = [spec.id for spec in specs]
    text = page(specs, {first: proof(first), second: proof(second, problem="test: libraries.ldd", digest="")})
    assert f"| `{first}` | 64 | 1 | 246 MB | 900 MB | 61 s | 57 s | 2 s | `bbbbbbbbbbbb` | 2026-11-21 |" in text
    assert f"## Failed\n\n- `{second}`: test: libraries.ldd" in text
    for name in others:
        assert f"- `{name}`\n" in text.partition("## Not built yet")[2]
    assert "| `smoke.nccl` | there is no GPU | 2 |" in text
    assert "waived" not in text
    waived = proof(first, waived={"process.size": "the new libraries are wanted"})
    assert "waived, and why\n\n| check | reason | images |" in page(specs, {first: waived})


def test_an_image_that_left_the_matrix_has_no_row(specs: tuple[Spec, ...]) -> None:
    assert "gone" not in page(specs, {"gone": proof("gone")})


def test_checking_a_matrix_without_records_names_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(SMALL)
    assert main(["prove", "--check", "--matrix", str(matrix)]) == CheckError.exit_code
    captured = capsys.readouterr()
    assert captured.out.count("missing") == 9
    assert "nox -s prove -- --registry" in captured.err


def test_the_reason_of_a_failure_is_in_the_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(SMALL)
    project = load_project(matrix)
    spec = project.expansion.specs[0]
    digests = _digests(project, spec)
    bad = proof(spec.id, files=digests.files, lock=digests.lock, problem="test: libraries.ldd", digest="")
    (tmp_path / "images").mkdir()
    (tmp_path / "images/proofs.json").write_text(format_proofs([bad]))
    assert main(["prove", spec.id, "--check", "--matrix", str(matrix)]) == CheckError.exit_code
    assert f"{spec.id}: failed: test: libraries.ldd" in " ".join(capsys.readouterr().err.split())


def test_records_that_are_no_text_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(SMALL)
    (tmp_path / "images").mkdir()
    (tmp_path / "images/proofs.json").write_bytes(b"[\xff]")
    assert main(["prove", "--check", "--matrix", str(matrix)]) == CheckError.exit_code
    assert "proofs.json is not valid" in capsys.readouterr().err


def test_a_run_needs_a_registry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(SMALL)
    assert main(["prove", "--matrix", str(matrix)]) == 2
    assert "--registry" in capsys.readouterr().err


def test_no_image_has_failed_and_the_page_names_the_missing() -> None:
    """Rows may be older than the code. A release of the toolkit needs a row for each image (`prove --check`)."""
    project = load_project(TOOLKIT / "matrix.yaml")
    proofs = _read(project)
    states = _states(project, project.expansion.specs, proofs)
    assert [name for name, state in states.items() if state is ProofState.FAILED] == []
    assert (TOOLKIT / "docs/images.md").read_text() == page(project.expansion.specs, proofs)
