"""The files that a Dockerfile takes from its build context, by its text."""

import pytest

from torchbake.errors import RenderError
from torchbake.matrix.dockerignore import DockerIgnore
from torchbake.render.build_context import OWN_WHEELS, ignore_file, own_sources

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
FROM y AS Locks
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
    assert tuple(own_sources(TEXT)) == ("a/b.txt", "c", "conf/*.yaml", "d e.txt", "f", "g.tar", "h", "i")


def test_what_is_not_copied_is_left_out_of_the_build() -> None:
    assert own_sources("FROM x AS builder\nCOPY images/builder.lock /tmp\n") == {}
    assert own_sources(f"FROM scratch AS wheels\nCOPY {OWN_WHEELS} ./\n") == {}, "the lock has their hashes"
    assert list(own_sources(f"FROM scratch AS other\nCOPY {OWN_WHEELS} ./\n")) == [OWN_WHEELS]
    lines = ignore_file(own_sources(TEXT), DockerIgnore()).splitlines()
    assert lines[1:5] == ["*", "!entrypoints", "!images", "!layers"]
    assert {"!a/b.txt", "!conf/*.yaml"} <= set(lines)


def test_what_the_projects_own_dockerignore_leaves_out_stays_out() -> None:
    ignore = DockerIgnore(lines=("*", "!src", "**/.env", "layers"))
    lines = ignore_file(["files/.env", "src"], ignore).splitlines()[1:]
    ours = ["!entrypoints", "!images", "!layers"]
    names = ["!files/.env", "!src"]
    assert lines == ["*", *ours, *names, *ignore.lines, *ours, "!files/.env", "**/__pycache__"]
    docker = DockerIgnore(lines=tuple(lines))
    kept_items = ("files/.env", "src/a", "src/b/c", "layers/own-files", "images/x/Dockerfile")
    assert [path for path in (*kept_items, "src/.env", "src/b/.env", "other") if not docker.leaves_out(path)] == [
        *kept_items
    ]


def test_what_only_our_own_stages_take_is_the_users_in_any_other() -> None:
    for line in ("COPY {} /x", "RUN --mount=type=bind,source={},target=/x true"):
        for path in ("entrypoints/mine", "layers", "images/builder.lock", "images/x/requirements.lock"):
            assert tuple(own_sources(f"FROM x\n{line.format(path)}\n")) == (path,), (path, line)


def test_a_dockerfile_is_read_as_docker_reads_it() -> None:
    for line, paths in (
        ("RUN --network=none --mount=type=bind,source=src,target=/x true", ["src"]),
        ("RUN --mount=TYPE=bind,SRC=src,target=/x --security=sandbox true --mount=source=no", ["src"]),
        ("COPY\tsrc\t/x", ["src"]),
        ("COPY --link --chown=1:0 src /x", ["src"]),
        ("COPY a\\\n\n   # a comment\n\n  b /x\nCOPY c /x", ["a", "b", "c"]),
        ("COPY src/\\\nmain.py /x", ["src/main.py"]),
        ("COPY [a-z]*.txt /x/", ["[a-z]*.txt"]),
        ("COPY 'a' \"b\" /x/", ["a", "b"]),
        ("COPY a//b/./c /x", ["a/b/c"]),
        ("ONBUILD COPY src /x", []),
        ("ONBUILD COPY src /x\nFROM y", ["src"]),
        ("ONBUILD RUN <<END\nCOPY no /x\nEND\nCOPY src /x", ["src"]),
        ("RUN python3 -c 'print(1<<20)'\nCOPY src /x", ["src"]),
        ("RUN echo $((1<<N))\nCOPY src /x", ["src"]),
        ('RUN cat <<<"foo"\nCOPY src /x', ["src"]),
        ("RUN <<'END-OF' cat\nCOPY no /x\nEND-OF\nCOPY src /x", ["src"]),
        ('RUN 3<<-END <<"TWO" cat\n\tEND\nCOPY no /x\nTWO\nCOPY src /x', ["src"]),
        ("ENV A=<<END\nCOPY src /x", ["src"]),
        ("COPY <<'a' b /x/\nCOPY no /x\na\nCOPY src /x", ["b", "src"]),
        ("RUN echo it is \\\\\nCOPY src /x", ["src"]),
    ):
        assert list(own_sources(f"FROM x\n{line}\n")) == paths, (line, paths)


@pytest.mark.parametrize(
    ("line", "modes"),
    [
        ("COPY src /x", True),
        ("COPY --chmod=0644 src /x", False),
        ("COPY --chmod=go-w src /x", True),
        ("COPY --chmod=0644 src /x\nCOPY src /y", True),
        ("RUN --mount=source=src,target=/x cp /x /y", True),
        ("RUN --mount=type=bind,source=src,target=/run/own-2 true", False),
    ],
)
def test_it_is_known_whose_modes_an_image_has(line: str, modes: bool) -> None:
    assert own_sources(f"FROM x\n{line}\n") == {"src": modes}


@pytest.mark.parametrize(
    "line",
    [
        *("COPY . /x", "COPY / /x", "COPY ./ /x", "COPY * /x", "COPY ../x /x", "COPY a/../../x /x", "COPY $FILE /x"),
        *("RUN --mount=target=/x true", "COPY it's /x", 'COPY "a b" /x', 'COPY ["a" "b"]', "COPY a**b /x"),
        *("COPY a[!b] /x", "COPY a[^b] /x", "COPY a\\*b /x", "COPY [1, 2] /x"),
    ],
)
def test_a_source_without_a_digest_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(RenderError, match="Line 3 of the Dockerfile copies"):
        own_sources(f"FROM x\n# why\n{line}\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "RUN cat <<END\nRUN true\n",
            "Line 2 of the Dockerfile begins a here-document with <<END, which no line ends",
        ),
        ("RUN cat <<END\n END\n", "begins a here-document"),
        ("RUN echo it's <<END\nEND\n", "Line 2 of the Dockerfile has a quote without its end"),
        (
            'RUN --mount="source=src,target=/x" true\n',
            "Line 2 of the Dockerfile has quotes or a backslash in the flag --mount",
        ),
    ],
)
def test_what_docker_refuses_or_reads_by_other_rules_is_refused(text: str, words: str) -> None:
    with pytest.raises(RenderError, match=words):
        own_sources(f"FROM x\n{text}")


def test_another_character_to_escape_by_is_refused() -> None:
    assert own_sources("# syntax=docker/dockerfile:1\n# escape=\\\nFROM x\n") == {}
    with pytest.raises(RenderError, match="sets another escape character"):
        own_sources("# syntax=docker/dockerfile:1\n# escape=`\nFROM x\n")
