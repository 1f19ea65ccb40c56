"""The image has the files and certificates that the user's matrix adds, and no others."""

import hashlib
import ssl
from typing import Any

from tests.images.checks import check
from tests.images.subject import Row
from tests.images.tell import some
from torchbake.matrix.added_files import promised
from torchbake.matrix.added_paths import certificate_name
from torchbake.matrix.spec import Own


def own_of(row: Row) -> Own:
    return row.spec.own


@check("own.certificates", "the system and Python trust the authorities that the row adds, and nobody else was added")
def test_certificates(row: Row, trust: dict[str, Any]) -> None:
    promised = {certificate_name(source): _digest(row, source) for source in own_of(row).certificates}
    wrong = [
        f"{name} is {'another' if name in trust['added'] else 'missing'}"
        for name, digest in promised.items()
        if trust["added"].get(name) != digest
    ]
    wrong += [f"Python does not trust {name}" for name, digest in promised.items() if digest not in trust["python"]]
    wrong += [f"{name} is not promised" for name in trust["added"] if name not in promised]
    assert not wrong, some(wrong)


@check("own.files", "the files that the row adds are there: what they hold, whose they are, who may read and run them")
def test_files(row: Row, contents: dict[str, Any]) -> None:
    wrong = []
    for path, (source, uid, mode) in promised(row.project.root, own_of(row)).items():
        found = contents[path]
        if found is None:
            wrong.append(f"{path} is missing")
            continue
        if (found["uid"], found["gid"], found["mode"]) != (uid, 0, mode):
            wrong.append(f"{path} is {found['uid']}:{found['gid']} {found['mode']:04o}, not {uid}:0 {mode:04o}")
        with source.open("rb") as file:
            same = hashlib.file_digest(file, "sha256").hexdigest() == found["sha256"]
        wrong += [] if same else [f"{path} is not what {source.name} is"]
    assert not wrong, some(wrong)


def _digest(row: Row, source: str) -> str:
    text = (row.project.root / source).read_text()
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN") :].strip())).hexdigest()
