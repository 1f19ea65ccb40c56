"""The stream reader returns the same bytes as zipfile, for pieces of any size."""

import io
import zipfile
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchbake.build.wheel_stream import open_member, read_member


def archive_of(*contents: bytes, method: int = zipfile.ZIP_DEFLATED) -> tuple[io.BytesIO, list[zipfile.ZipInfo]]:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for number, content in enumerate(contents):
            archive.writestr(f"folder/{number}", content)
    with zipfile.ZipFile(file) as archive:
        return file, archive.infolist()


def pieces_of(file: io.BytesIO, info: zipfile.ZipInfo, size: int) -> bytes:
    with open_member(file, info) as member:
        pieces = [*iter(lambda: member.read(size), b"")]
    assert max(map(len, pieces), default=0) <= size
    assert b"".join(pieces) == read_member(file, info)
    return b"".join(pieces)


@given(
    contents=st.lists(
        st.binary(max_size=300)
        | st.integers(1, 3000000).map(lambda size: Random(size).randbytes(size))
        | st.integers(0, 70000).map(lambda size: b"torch" * size),
        min_size=1,
        max_size=4,
    ),
    size=st.integers(1, 100_000),
    method=st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
)
def test_each_file_is_what_was_written(contents: list[bytes], size: int, method: int) -> None:
    file, infos = archive_of(*contents, method=method)
    assert [pieces_of(file, info, max(size, info.file_size // 50)) for info in reversed(infos)] == contents[::-1]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_what_is_cut_off_ends_early(method: int) -> None:
    content = bytes(range(256)) * 40
    file, (info,) = archive_of(content, method=method)
    file.truncate(info.compress_size // 2)
    assert len(pieces_of(file, info, 100)) < len(content)
