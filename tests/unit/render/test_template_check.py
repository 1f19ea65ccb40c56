"""A project's template whose Dockerfile no engine would build is refused with file and line, without an engine."""

from pathlib import Path

import pytest

from tests.unit.conftest import NIGHTLY, init_image
from tests.unit.render.test_dockerfile import CASES
from tests.unit.render.test_templates import BLOCKS, OURS
from torchbake.errors import RenderError
from torchbake.render.dockerfile import render


def rendered(root: Path, text: str) -> str:
    templates = root / "templates"
    templates.mkdir(exist_ok=True)
    (templates / "pytorch.Dockerfile.j2").write_text(text)
    return render(*CASES["cpu-runtime"], templates)


def refused(root: Path, text: str) -> str:
    with pytest.raises(RenderError) as caught:
        rendered(root, text)
    assert caught.value.hint
    return caught.value.message


WRONG = (
    ("RNU true", "did you mean RUN?"),
    ("{{ 'rnu' }} true", "no instruction RNU"),
    ("ONBUILD RNU true", "did you mean RUN?"),
    ("RUN", "RUN has no arguments"),
    ("COPY nothing /x", "COPY of nothing"),
    ("COPY nothing* /x", "COPY of nothing*"),
    ("RUN --mount=type=bind,source=nothing,target=/x true", "RUN of nothing"),
)
BEFORE = (("", 4), ("# why\n\n", 6), ("RUN true \\\n  && true\n", 6))  # and the line of the instruction after it


def test_a_wrong_instruction_has_file_and_line_in_each_block(tmp_path: Path) -> None:
    file = tmp_path / "templates/pytorch.Dockerfile.j2"
    for place, block in enumerate(BLOCKS):
        begin = f"{OURS}{{% block {block} %}}\nENV A=1\n"
        for step, (line, words) in enumerate(WRONG):
            variants = BEFORE if NIGHTLY else [BEFORE[(place + step) % len(BEFORE)]]
            for before, number in variants:
                message = refused(tmp_path, f"{begin}{before}{line}\n{{% endblock %}}")
                if "{{" in line:  # the line of an expression is that of the text around it
                    assert message.startswith(f"{file}:"), (block, line)
                else:
                    assert message.startswith(f"{file}:{number}: "), (block, line, message)
                assert words in message, (block, line)


def test_captured_text_keeps_its_value(tmp_path: Path) -> None:
    for begin in (
        '{% macro d() %}yes{% endmacro %}{% if d() == "yes" %}',
        '{% set x %}yes{% endset %}{% if x == "yes" %}',
        '{% set x %}yes{% endset %}{% if {"yes": true}[x] %}',
    ):
        text = f"{OURS}{{% block end %}}{begin}\nENV A=1\n{{{{ word }}}} true\n{{% endif %}}{{% endblock %}}"
        assert "ENV A=1\nRUN true" in rendered(tmp_path, text.replace("{{ word }}", "RUN")), begin
        assert "did you mean RUN?" in refused(tmp_path, text.replace("{{ word }}", "RNU")), begin
        message = refused(tmp_path, text.replace("{{ word }} true", "COPY nothing /x"))
        assert message.startswith("templates/pytorch.Dockerfile.j2: COPY of nothing"), begin
        (tmp_path / "something").touch()
        assert "COPY something" in rendered(tmp_path, text.replace("{{ word }} true", "COPY something /x")), begin
        assert "begins another image" in refused(tmp_path, text.replace("{{ word }} true", "FROM scratch")), begin
    captured = "{% set x %}\nRUN true\nRNU true\n{% endset %}"
    message = refused(tmp_path, f"{OURS}{{% block end %}}\n{captured}{{{{ x }}}}{{% endblock %}}")
    assert ":5: " in message


def test_sources_that_exist_and_documents_pass(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d/a.conf").touch()
    for line in (
        "COPY conf.d /etc/acme",
        "COPY conf.d/*.conf /etc/acme/",
        "COPY <<EOF /etc/acme/x\nRNU is text here\nEOF",
        "COPY --from=builder /nothing /x",
        "RUN <<EOF\nRNU\nEOF",
        "ADD https://example.com/x /x",
        "run true",
    ):
        for block in BLOCKS:
            assert line in rendered(tmp_path, f"{OURS}{{% block {block} %}}{line}{{% endblock %}}"), line


def test_another_image_in_place_of_the_matrixs_is_refused(tmp_path: Path) -> None:
    for block in ("after_packages", "before_user", "end"):
        message = refused(tmp_path, f"{OURS}{{% block {block} %}}\nFROM scratch{{% endblock %}}")
        assert ":3: `FROM scratch` begins another image" in message, block
    for text in (
        "FROM scratch",
        "FROM debian:sid AS x\nFROM x",
        "# nothing",
        "FROM {{ spec.base.image }}\nFROM scratch",
        "FROM --platform=linux/amd64 debian:sid",
        "FROM --platform=linux/amd64",
        "ARG B=debian\nFROM $B AS a\nFROM scratch",
    ):
        assert "base" in refused(tmp_path, text), text


def test_stages_and_an_image_on_the_base_are_kept(tmp_path: Path) -> None:
    stages = "FROM debian:sid AS tools\nRUN true\nFROM scratch AS files\nCOPY --from=tools /etc /etc"
    assert stages in rendered(tmp_path, f"{OURS}{{% block stages %}}{stages}{{% endblock %}}")
    for text in (
        "FROM {{ spec.base.image }}\nUSER 1001",
        '{% import "macros.j2" as m -%}\nFROM {{ spec.base.image }}\n{{ m.labels(labels) }}',
        "FROM --platform=linux/amd64 {{ spec.base.image }}",
        "FROM --platform=$BUILDPLATFORM {{ spec.base.image }} AS a\nFROM --platform=linux/amd64 a",
        "ARG B={{ spec.base.image }}\nFROM $B",
        "ARG B={{ spec.base.image }}\nFROM ${B} AS a\nFROM a",
        "FROM {{ spec.base.image }} AS own\nFROM golang AS go\nFROM Own\nCOPY --from=go /x /x",
    ):
        assert "debian:bookworm-slim" in rendered(tmp_path, text)


def test_an_init_image_may_begin_from_nothing(tmp_path: Path) -> None:
    (tmp_path / "volume-permissions.Dockerfile.j2").write_text("FROM scratch\nUSER 1001\n")
    assert render(init_image(), None, tmp_path) == "FROM scratch\nUSER 1001\n"
