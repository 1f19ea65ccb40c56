"""Added files of a matrix: each mistake is reported with the line that names the file."""

from pathlib import Path

import pytest

from tests.certificates import AUTHORITY, SERVER
from tests.unit.conftest import edited
from torchbake.errors import MatrixError
from torchbake.matrix.added_files import expected_files, file_paths
from torchbake.matrix.project import load_project
from torchbake.matrix.spec import Additions, OwnFile

CPU = "    accelerator: cpu\n"
LINE = 1 + edited(CPU, f"{CPU}# here\n").splitlines().index("# here")
# Put together here, so that no scanner takes this file for a leak.
KEY = (
    "-----BEGIN "
    + "PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg\n-----END "
    + "PRIVATE KEY-----\n"
)


def matrix_with(folder: Path, line: str) -> Path:
    path = folder / "matrix.yaml"
    path.write_text(edited(CPU, f"{CPU}    {line}\n"))
    return path


def problem_of(folder: Path, line: str) -> str:
    path = matrix_with(folder, line)
    with pytest.raises(MatrixError) as caught:
        load_project(path)
    assert caught.value.message.startswith(f"{path}:{LINE}: rows.0.")
    return caught.value.message


def test_a_certificate_of_an_authority_is_taken(tmp_path: Path) -> None:
    (tmp_path / "acme.pem").write_text(f"subject=CN = Acme Root\n{AUTHORITY}")
    specs = load_project(matrix_with(tmp_path, "certificates: [acme.pem]")).expansion.specs
    assert specs[0].own.certificates == ("acme.pem",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "holds no certificates in PEM"),
        (AUTHORITY + SERVER, "holds 2 certificates"),
        (AUTHORITY + KEY, "holds a private key"),
        (KEY, "holds a private key"),
        (AUTHORITY.replace("M", "*", 3), "not a certificate that OpenSSL can read"),
        (AUTHORITY.replace(AUTHORITY[60:120], ""), "not a certificate that OpenSSL can read"),
        (AUTHORITY.partition("-----END")[0], "not a certificate that OpenSSL can read"),
        (SERVER, "not an authority's certificate"),
        ("\xff", "is not PEM; make it so: openssl x509 -inform der"),
        (AUTHORITY + "#" * (1 << 20), "too large"),
    ],
)
def test_what_is_no_certificate_is_told(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "acme.pem").write_bytes(content.encode("latin-1"))
    message = problem_of(tmp_path, "certificates: [acme.pem]")
    assert "rows.0.certificates.0: acme.pem: " in message
    assert words in message


def test_a_missing_file_is_reported_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "acme.pem").write_text(AUTHORITY)
    assert "acmme.pem: no such file beside the matrix; did you mean 'acme.pem'?" in problem_of(
        tmp_path, "certificates: [acmme.pem]"
    )
    (tmp_path / "folder").mkdir()
    assert "is a folder" in problem_of(tmp_path, "certificates: [folder]")


@pytest.mark.parametrize("link", ["acme.pem", "linked"])
def test_a_symlink_is_refused_wherever_it_leads(link: str, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/acme.pem").write_text(AUTHORITY)
    (tmp_path / link).symlink_to(tmp_path / "real" / ("" if link == "linked" else link))
    source = "linked/acme.pem" if link == "linked" else link
    assert "symlink" in problem_of(tmp_path, f"certificates: [{source}]")


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    assert problem_of(tmp_path, "certificates: [a.pem]").count("no such file") == 1
    path = matrix_with(tmp_path, "certificates: [a.pem, b.pem]")
    with pytest.raises(MatrixError, match=r"2 problems:\n.*a\.pem: no such.*\n.*b\.pem: no such"):
        load_project(path)


FILES = "files: [{source: conf/, target: /etc/acme}, {source: job.py, target: /app/job.py}]"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a matrix with a folder and a file in its folder."""
    (tmp_path / "conf/sub/__pycache__").mkdir(parents=True)
    (tmp_path / "conf/a.yaml").write_text("a")
    (tmp_path / "conf/sub/run").write_text("b")
    (tmp_path / "conf/sub/run").chmod(0o700)
    (tmp_path / "conf/sub/__pycache__/x.pyc").write_text("c")
    (tmp_path / "job.py").write_text("job")
    return tmp_path


def test_what_is_promised_of_files_is_their_place_owner_and_mode(folder: Path) -> None:
    own = load_project(matrix_with(folder, FILES)).expansion.specs[0].own
    matches = {
        path: (source.relative_to(folder).as_posix(), *rest)
        for path, (source, *rest) in expected_files(folder, own).items()
    }
    assert matches == {
        "/etc/acme/a.yaml": ("conf/a.yaml", 0, 0o644),
        "/etc/acme/sub/run": ("conf/sub/run", 0, 0o755),
        "/app/job.py": ("job.py", 1001, 0o664),
    }
    assert own.files[0].source == "conf/"


def test_owner_and_mode_are_what_the_matrix_says(folder: Path) -> None:
    line = (
        "files: [{source: conf/, target: /app, mode: '0640', owner: root}, {source: job.py, target: /x, owner: user}]"
    )
    own = load_project(matrix_with(folder, line)).expansion.specs[0].own
    assert {path: rest for path, (_, *rest) in expected_files(folder, own).items()} == {
        "/app/a.yaml": [0, 0o640],
        "/app/sub/run": [0, 0o640],
        "/x": [1001, 0o664],
    }


def test_added_folders_are_planned_but_not_the_users_own(folder: Path) -> None:
    line = "files: [{source: conf/, target: /srv/x, owner: user}, {source: conf/, target: /app}]"
    own = load_project(matrix_with(folder, line)).expansion.specs[0].own
    assert file_paths(folder, own) - set(expected_files(folder, own)) == {"/srv/x", "/srv/x/sub", "/app/sub"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("files: [{source: job.pi, target: /x}]", "did you mean 'job.py'?"),
        ("files: [{source: conf, target: /x}]", "conf: is a folder; write it with a slash"),
        ("files: [{source: job.py/, target: /x}]", "job.py/: is not a folder"),
        ("files: [{source: links/, target: /x}]", "holds away, which is neither a file nor a folder"),
        ("files: [{source: opt/, target: /opt}]", "holds venv, and /opt/venv is not allowed"),
    ],
)
def test_what_is_wrong_with_files_is_told(line: str, words: str, folder: Path) -> None:
    (folder / "links").mkdir()
    (folder / "links/away").symlink_to("/etc/passwd")
    (folder / "opt/venv").mkdir(parents=True)
    (folder / "opt/venv/x").write_text("x")
    assert words in problem_of(folder, line)


def test_ignored_files_of_a_folder_are_not_promised(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    for name in ("a", ".env"):
        (tmp_path / "x" / name).write_text(name)
    own = Additions(files=(OwnFile(source="x/", target="/srv/x"),))
    assert set(expected_files(tmp_path, own)) == {"/srv/x/a", "/srv/x/.env"}
    (tmp_path / ".dockerignore").write_text("**/.env\n")
    assert set(expected_files(tmp_path, own)) == {"/srv/x/a"}
