"""Small wheels for a test index, in place of real wheels of a gigabyte."""

import base64
import hashlib
import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

_PLATFORM = "py3-none-manylinux2014_x86_64"


def write_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, bytes],
    *,
    needs: Sequence[str] = (),
    tag: str = _PLATFORM,
    executable: Collection[str] = (),
    unnamed: Collection[str] = (),
) -> str:
    """Write a wheel of these files into a folder, which is made. Return the sha256 by which a lock names it.

    Its RECORD does not name the files that are ``unnamed``.
    """
    stem = f"{name.replace('-', '_')}-{version}"
    requires = "".join(f"Requires-Dist: {need}\n" for need in needs)
    whole = {
        **files,
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}".encode(),
        f"{stem}.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
    }
    rows = [f"{path},sha256={_hash(data)},{len(data)}" for path, data in whole.items() if path not in unnamed]
    whole[f"{stem}.dist-info/RECORD"] = "\n".join([*rows, f"{stem}.dist-info/RECORD,,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in whole.items():
            archive.writestr(path, data)
            archive.getinfo(path).external_attr = (0o755 if path in executable else 0o644) << 16
    return f"sha256:{hashlib.sha256(target.read_bytes()).hexdigest()}"


def _hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
