"""The image has the files and certificates that the user's matrix adds, and no others."""

import hashlib
import ssl
from typing import Any

from tests.images.checks import check
from tests.images.subject import Row
from tests.images.tell import some
from torchbake.lock.project_content import added_content
from torchbake.matrix.added_files import expected_files
from torchbake.matrix.added_paths import certificate_name
from torchbake.matrix.spec import Additions


def own_of(row: Row) -> Additions:
    return added_content(row.spec, row.lock)


@check("own.certificates", "the system and Python trust the authorities that the row adds, and nobody else was added")
def test_certificates(row: Row, trust: dict[str, Any]) -> None:
    promises = {certificate_name(source): _digest(row, source) for source in own_of(row).certificates}
    wrong = [
        f"{name} is {'another' if name in trust['added'] else 'missing'}"
        for name, digest in promises.items()
        if trust["added"].get(name) != digest
    ]
    wrong += [f"Python does not trust {name}" for name, digest in promises.items() if digest not in trust["python"]]
    wrong += [f"{name} is not promised" for name in trust["added"] if name not in promises]
    assert not wrong, some(wrong)


@check("own.files", "the files that the row adds are there: what they hold, whose they are, who may read and run them")
def test_files(row: Row, contents: dict[str, Any]) -> None:
    wrong = []
    for path, (source, uid, mode) in expected_files(row.project.root, own_of(row)).items():
        value = contents[path]
        if value is None:
            wrong.append(f"{path} is missing")
            continue
        if (value["uid"], value["gid"], value["mode"]) != (uid, 0, mode):
            wrong.append(f"{path} is {value['uid']}:{value['gid']} {value['mode']:04o}, not {uid}:0 {mode:04o}")
        with source.open("rb") as file:
            same = hashlib.file_digest(file, "sha256").hexdigest() == value["sha256"]
        wrong += [] if same else [f"{path} is not what {source.name} is"]
    assert not wrong, some(wrong)


def _digest(row: Row, source: str) -> str:
    text = (row.project.root / source).read_text()
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN") :].strip())).hexdigest()
