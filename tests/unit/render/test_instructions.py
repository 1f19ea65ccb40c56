"""What a Dockerfile takes of the folder it is built in, read off its text."""

import pytest

from torchbake.errors import RenderError
from torchbake.render.instructions import ignore_file, instructions, own_sources

TEXT = """\
FROM scratch AS toolkit
COPY entrypoints /entrypoints
FROM x
copy --chown=1:1 a/b.txt ./c/ /there/
COPY --from=toolkit /entrypoints/x /x
COPY ["d e.txt", "f", "/x/"]
ADD https://example.com/x.tar g.tar /x/
RUN --mount=type=cache,target=/c --mount=type=bind,source=h,target=/h --mount=src=i,target=/i \\
    # a comment
    --mount=type=bind,from=toolkit,source=/j,target=/j true
COPY images/x/requirements.lock /tmp/
RUN <<END
COPY not-this /x
END
COPY <<text /k
COPY nor-this /x
text
COPY conf/*.yaml /etc/
"""


def test_what_is_copied_and_mounted_is_found_and_nothing_else() -> None:
    assert own_sources(TEXT) == ("a/b.txt", "c", "conf/*.yaml", "d e.txt", "f", "g.tar", "h", "i")


def test_continued_lines_are_one_instruction() -> None:
    assert list(instructions("RUN a\\\n  # c\n  b\n\nENV X=1")) == [("RUN", "a b"), ("", ""), ("ENV", "X=1")]


def test_what_is_not_copied_is_left_out_of_the_build() -> None:
    assert ignore_file("FROM x\nCOPY images/builder.lock /tmp\n") == ""
    lines = ignore_file(TEXT).splitlines()
    assert lines[1:5] == ["*", "!entrypoints", "!images", "!layers"]
    assert {"!a/b.txt", "!conf/*.yaml"} <= set(lines)


@pytest.mark.parametrize(
    "line",
    ["COPY . /x", "COPY / /x", "COPY ../x /x", "COPY a/../../x /x", "COPY $FILE /x", "RUN --mount=target=/x true"],
)
def test_what_nobody_could_put_into_a_digest_is_refused(line: str) -> None:
    with pytest.raises(RenderError, match="A Dockerfile copies"):
        own_sources(f"FROM x\n{line}\n")
