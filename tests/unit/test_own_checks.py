"""The image checks for a matrix's additions: the messages for each problem."""

import hashlib
import importlib
import json
import ssl
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.certificates import AUTHORITY
from tests.unit.conftest import pin
from torchbake.lock.lockfile import Lock, assign_layers
from torchbake.matrix.spec import Additions, OwnFile, User
from torchbake.render.installers import CONSTRAINTS

own = importlib.import_module("tests.images.test_own")
python = importlib.import_module("tests.images.test_python")
users = importlib.import_module("tests.images.test_users")
ACME = hashlib.sha256(ssl.PEM_cert_to_DER_cert(AUTHORITY)).hexdigest()
OURS: Any = SimpleNamespace(origin=None)
DERIVED: Any = SimpleNamespace(origin="torchbake/pytorch:cpu")
JOB = {"sha256": hashlib.sha256(b"job").hexdigest(), "uid": 2000, "gid": 0, "mode": 0o664}


@pytest.fixture
def row(tmp_path: Path) -> Any:
    """A row that adds a certificate and a file."""
    (tmp_path / "acme.pem").write_text(f"# of 2026\n{AUTHORITY}")
    (tmp_path / "job.py").write_text("job")
    adds = Additions(
        certificates=("acme.pem",),
        files=(OwnFile(source="job.py", target="/app/job.py"),),
        user=User(uid=2000),
    )
    return SimpleNamespace(spec=SimpleNamespace(own=adds), lock=None, project=SimpleNamespace(root=tmp_path))


@pytest.mark.parametrize(
    ("added", "python", "words"),
    [
        ({"acme.crt": ACME}, [ACME], ""),
        ({}, [ACME], "acme.crt is missing"),
        ({"acme.crt": "other"}, [ACME], "acme.crt is another"),
        ({"acme.crt": ACME}, [], "Python does not trust acme.crt"),
        ({"acme.crt": ACME, "x.crt": "other"}, [ACME], "x.crt is not promised"),
    ],
)
def test_certificates_are_those_of_the_row(row: Any, added: dict[str, str], python: list[str], words: str) -> None:
    if not words:
        own.test_certificates(row, {"added": added, "python": python})
        return
    with pytest.raises(AssertionError, match=words):
        own.test_certificates(row, {"added": added, "python": python})


@pytest.mark.parametrize(
    ("matches", "words"),
    [
        (JOB, ""),
        (None, "/app/job.py is missing"),
        (JOB | {"uid": 0}, "/app/job.py is 0:0 0664, not 2000:0 0664"),
        (JOB | {"mode": 0o644}, "2000:0 0644, not"),
        (JOB | {"sha256": "other"}, "/app/job.py is not what job.py is"),
    ],
)
def test_files_are_those_of_the_row(row: Any, matches: dict[str, Any] | None, words: str) -> None:
    if not words:
        own.test_files(row, {"/app/job.py": matches})
        return
    with pytest.raises(AssertionError, match=words):
        own.test_files(row, {"/app/job.py": matches})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("jovyan:x:2000:0::/home/jovyan:/bin/sh", ""),
        ("other:x:2000:0::/home/jovyan:/bin/sh", "uid 2000 is other"),
        ("jovyan:x:2000:5::/home/jovyan:/bin/sh", "group 5"),
        ("jovyan:x:2000:0::/root:/bin/sh", "at home in /root"),
        ("jovyan:x:2001:0::/home/jovyan:/bin/sh", "0 accounts have the uid 2000"),
    ],
)
def test_the_account_is_the_rows(line: str, words: str) -> None:
    subject: Any = SimpleNamespace(user=User(uid=2000, name="jovyan"))
    tree = {"accounts": {"passwd": ["root:x:0:0:root:/root:/bin/bash", line, ""]}}
    if not words:
        users.test_account(tree, subject)
        return
    with pytest.raises(AssertionError, match=words):
        users.test_account(tree, subject)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# why\ntorch==2.13.0+cpu\ntriton==3.6.0\n", ""),
        (None, "constraints.txt is missing"),
        ("torch==2.13.0+cpu\n", "triton==3.6.0 is not in it"),
        ("torch==2.13.0\ntriton==3.6.0\n", "torch==2.13.0[+]cpu is not in it"),
        ("torch==2.13.0+cpu\ntriton==3.5.0\n", "triton==3.5.0, and 3.6.0 is there"),
        ("torch==2.13.0+cpu\ntriton==3.6.0\nnvidia-nccl-cu12==2.27.5\n", "nvidia-nccl-cu12==2.27.5, and none is there"),
        ("torch==2.13.0+cpu\ntriton==3.6.0\ntorchaudio==2.11.0+cpu\n", ""),  # not installed
        ("torch==2.13.0+cpu\ntriton==3.6.0\ntorchvision==0.28.0+cpu\n", "==0.28.0[+]cpu, and 0.28.0 is there"),
        ("torch==2.13.0+cpu\ntriton==3.6.0\nnvidia-cublas<0\n", ""),
    ],
)
def test_constraints_are_what_is_installed(text: str | None, words: str) -> None:
    row: Any = SimpleNamespace(
        lock=SimpleNamespace(constraints=("torch==2.13.0+cpu", "triton==3.6.0")),
        promise=SimpleNamespace(environment={"PIP_CONSTRAINT": CONSTRAINTS}),
    )
    versions = {"torch": "2.13.0+cpu", "triton": "3.6.0", "torchvision": "0.28.0"}
    there = [{"name": name, "version": version} for name, version in versions.items()]
    with pytest.raises(AssertionError, match=words) if words else nullcontext():
        python.test_constraints(row, OURS, text, {"packages": there})


def test_a_derived_image_may_give_torch_the_label_of_its_lock() -> None:
    row: Any = SimpleNamespace(
        lock=SimpleNamespace(constraints=("torch===2.10.0",)),
        promise=SimpleNamespace(environment={"PIP_CONSTRAINT": CONSTRAINTS}),
    )
    packages = {"packages": [{"name": "torch", "version": "2.10.0"}]}
    python.test_constraints(row, DERIVED, "torch==2.10.0+cu128\n", packages)
    for subject, text in ((OURS, "torch==2.10.0+cu128\n"), (DERIVED, "torch==2.9.1+cu128\n")):
        with pytest.raises(AssertionError, match="torch"):
            python.test_constraints(row, subject, text, packages)


def test_a_derived_image_keeps_torch_and_may_change_the_rest() -> None:
    lock = Lock(inputs="", layers=assign_layers((pin("torch", "2.10.0"), pin("numpy", "2.4.0"))))
    row: Any = SimpleNamespace(lock=lock, spec=None, project=SimpleNamespace(root=None))
    torch, numpy = {"name": "torch", "version": "2.10.0"}, {"name": "numpy", "version": "2.4.0"}
    cases: list[tuple[Any, list[dict[str, str]], list[str], str]] = [
        (OURS, [torch, numpy], ["torch"], ""),
        (OURS, [torch, numpy], [], "uv does not see torch"),
        (OURS, [torch], ["torch"], "numpy 2.4.0 is missing"),
        (DERIVED, [torch], [], ""),
        (DERIVED, [torch, {**numpy, "version": "2.3.0"}], ["torch"], ""),
        (DERIVED, [torch, {**torch, "version": "2.9.1"}], [], "torch is there twice"),
        (DERIVED, [{**torch, "version": "2.9.1"}], ["torch"], "torch is 2.9.1, not 2.10.0"),
    ]
    for subject, there, entries, words in cases:
        with pytest.raises(AssertionError, match=words) if words else nullcontext():
            python.test_locked(row, subject, {"packages": there, "entries": entries})


def test_constraints_that_nobody_promised_are_told() -> None:
    row: Any = SimpleNamespace(lock=object(), promise=SimpleNamespace(environment={}))
    python.test_constraints(row, OURS, None, {})
    with pytest.raises(AssertionError, match="the row does not say so"):
        python.test_constraints(row, OURS, "torch==2.9.0\n", {})


def test_what_modules_print_is_no_part_of_the_answer(tmp_path: Path, pythons: Callable[..., list[str]]) -> None:
    (tmp_path / "loud.py").write_text(
        "import atexit, os\nprint('hello')\natexit.register(os.system, 'echo good bye')\n"
    )
    words = ["tests/images/probe/imports.py", json.dumps(["loud", "not_there"])]
    (output,) = pythons(words, {"PYTHONPATH": str(tmp_path)})
    assert json.loads(output)["errors"] == {"not_there": "ModuleNotFoundError: No module named 'not_there'"}
