"""A project's own templates: they extend the toolkit's, and what is wrong in them is told with file and line."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.certificates import AUTHORITY
from tests.images.dockerfile import promise_of
from tests.unit.conftest import SMALL, check_golden, init_image
from tests.unit.render.test_dockerfile import CASES, GOLDEN, PYTORCH
from torchbake.core.paths import TOOLKIT
from torchbake.errors import RenderError
from torchbake.matrix.project import load_project
from torchbake.render import templates
from torchbake.render.dockerfile import render

OURS = '{% extends "toolkit/pytorch.Dockerfile.j2" %}\n'
BLOCKS = ("after_base", "stages", "after_packages", "before_user", "end")
Write = Callable[..., str]


@pytest.fixture
def rendered(tmp_path: Path) -> Write:
    """The CPU's image as a project renders it whose templates are given by name."""

    def write(text: str, case: str = "cpu-runtime", **others: str) -> str:
        templates = tmp_path / "templates"
        templates.mkdir(exist_ok=True)
        for name, content in {"pytorch": text, **others}.items():
            (templates / f"{name}.Dockerfile.j2").write_text(content)
        return render(*CASES[case], templates)

    return write


def plain(case: str = "cpu-runtime") -> str:
    return render(*CASES[case])


@pytest.mark.parametrize("parent", ["toolkit/pytorch.Dockerfile.j2", "pytorch.Dockerfile.j2"])
def test_a_template_of_the_same_name_extends_the_toolkits(parent: str, rendered: Write) -> None:
    assert rendered(f'{{% extends "{parent}" %}}') == plain()


def test_without_an_own_template_the_toolkits_is_used(tmp_path: Path) -> None:
    (tmp_path / "macros.j2").write_text("{% nonsense %}")
    assert render(*CASES["cpu-devel"], tmp_path) == plain("cpu-devel")
    assert render(init_image(), None, tmp_path) == render(init_image(), None)


def test_the_text_of_a_block_has_its_own_lines_in_any_form(rendered: Write) -> None:
    for form in ("RUN true", "\nRUN true\n", "\n\n  RUN true  \n\n"):
        for block in BLOCKS:
            text = rendered(f"{OURS}{{% block {block} %}}{form}{{% endblock %}}")
            lines = text.splitlines()
            added = [line.strip() for line in lines].index("RUN true")
            kept_items = lines[:added] + lines[added + 1 :]
            assert [line for line in kept_items if line] == [line for line in plain().splitlines() if line], (
                block,
                form,
            )


def test_the_blocks_stand_where_their_names_say(rendered: Write) -> None:
    for name in PYTORCH:
        text = rendered(OURS + "".join(f"{{% block {block} %}}# {block}{{% endblock %}}" for block in BLOCKS), name)
        places = [text.index(f"# {block}\n") for block in BLOCKS]
        assert places == sorted(places), name
        final = text.rindex("\nFROM ")
        assert [place > final for place in places] == [False, False, True, True, True], name
        after_packages, before_user, end = places[2:]
        assert (
            text.rindex("COPY ") < after_packages < text.rindex("\nENV ") < text.rindex("\nWORKDIR ") < before_user
        ), name
        assert before_user < text.rindex("\nUSER ") < text.rindex("\nCMD ") < end, name


def test_a_block_knows_what_the_toolkits_template_knows(rendered: Write) -> None:
    line = "RUN {{ m.apt_secrets() }} /run/apt-install {{ spec.flavor }} {{ user.uid }} {{ venv }}"
    text = rendered(f"{OURS}{{% block after_packages %}}{line}{{{{ super() }}}}{{% endblock %}}")
    assert "/run/apt-install runtime 1001 /opt/venv" in text
    assert text.count("id=apt-conf") == 3


def test_an_init_image_has_blocks_too(tmp_path: Path) -> None:
    name = "volume-permissions.Dockerfile.j2"
    blocks = "".join(f"{{% block {one} %}}# {one}{{% endblock %}}" for one in BLOCKS if one != "after_packages")
    (tmp_path / name).write_text(f'{{% extends "{name}" %}}{blocks}')
    text = render(init_image(), None, tmp_path)
    assert re.findall(r"(?m)^# ([a-z_]+)$", text) == ["after_base", "stages", "before_user", "end"]


def test_a_template_that_extends_none_is_the_whole_dockerfile(rendered: Write) -> None:
    assert rendered("FROM {{ spec.base.image }}\nUSER {{ user.uid }}") == "FROM debian:bookworm-slim\nUSER 1001\n"


def test_templates_may_extend_each_other(rendered: Write) -> None:
    other = f"{OURS}{{% block before_user %}}RUN one{{% block mine %}}{{% endblock %}}{{% endblock %}}"
    text = '{% extends "other.Dockerfile.j2" %}{% block mine %} && two{% endblock %}'
    assert "\nRUN one && two\n" in rendered(text, other=other)


def test_what_a_template_sets_is_promised(rendered: Write) -> None:
    block = "{% block before_user %}ENV PATH=/opt/acme:$PATH\nEXPOSE 80{% endblock %}"
    promise = promise_of(rendered(OURS + block))
    assert promise.environment["PATH"] == "/opt/acme:" + promise_of(plain()).environment["PATH"]
    assert promise.ports == {"80/tcp"}
    assert promise.user == "1001"


def test_what_is_wrong_is_told_with_file_and_line(rendered: Write) -> None:
    for text, words in (
        (
            f"{OURS}\n{{% block befor_user %}}{{% endblock %}}",
            r"j2:3: .*no block 'befor_user'; did you mean 'before_user'",
        ),
        (f"{OURS}{{% block zzz %}}{{% endblock %}}", r"j2:2: .*no block 'zzz'; there are: after_base, after_packages"),
        (f"{OURS}\n\nRUN true\n", r"j2:4: 'RUN true' is in no block"),
        (f"{OURS}{{% block end %}}\n{{{{ nobody }}}}{{% endblock %}}", r"j2:3: 'nobody' is undefined"),
        (f"{OURS}{{% block end %}}\n{{{{ 1 + spec }}}}{{% endblock %}}", r"j2:3: unsupported operand"),
        (f"{OURS}{{% block end %}}\n", r"j2:2: Unexpected end of template"),
        (f"{OURS}{{% block end %}}\n\n{{% if %}}{{% endblock %}}", r"j2:4: "),
        ('{% extends "pytroch.Dockerfile.j2" %}', "no such template; did you mean pytorch.Dockerfile.j2"),
        ("{# #}\n{% extends 5 %}", "j2:2: extends 5, which is not the name of a template"),
        ('{% extends ["a", 5] %}', "j2:1: "),
        ('{% extends "" %}', "no such template"),
        (f"{OURS}{{% block end %}}\n{{% include 5 %}}{{% endblock %}}", "j2:3: "),
        (f"{OURS}{{% block end %}}\n{{% import 5 as x %}}{{% endblock %}}", "j2:3: "),
        ('{% extends "toolkit/nothing.j2" %}', "templates/nothing.j2: no such template"),
    ):
        with pytest.raises(RenderError, match=words) as caught:
            rendered(text)
        assert caught.value.hint, (text, words)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("{{ cycler.__init__.__globals__.os.popen('touch FILE').read() }}", "'__init__' of 'type' object is unsafe"),
        ("{{ spec.__class__.__mro__ }}", "'__class__' of 'ImageSpec' object is unsafe"),
        ("{{ 'FILE'.__class__ }}", "unsafe"),
        ("{{ '{0.__class__}'.format(spec) }}", "unsafe"),
        ("{{ ['format', '{0.__class__}']|map('upper')|list }}{{ ('{0.__class__}'|attr('format'))(spec) }}", "unsafe"),
        ("{{ spec|map(attribute='__class__')|list }}{{ [spec]|map(attribute='__class__')|list }}", "j2:3: "),
        ("{{ needs.append('x') }}", "'append' of 'list' object is unsafe"),
        ("{{ range(10 ** 9) }}", "may be too large"),
        ("{{ range(1000000000)|list }}", "too big"),
        ("{{ 'x' * 1000000000 }}", "may be too large"),
        ("{% for a in range(10000) %}{% for b in range(3000) %}{% endfor %}{% endfor %}", "more than 0.1 seconds"),
        ("{% macro f(n) %}{% if n %}{{ f(n - 1) ~ f(n - 1) }}{% endif %}{% endmacro %}{{ f(20) }}", "more than 0.1 s"),
    ],
)
def test_a_template_has_neither_this_hosts_python_nor_its_time(
    code: str, words: str, rendered: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(templates, "_SECONDS", 0.1, raising=False)
    ran = tmp_path / "ran"
    with pytest.raises(RenderError, match=words) as caught:
        rendered(f"{OURS}{{% block end %}}\n{code.replace('FILE', str(ran))}{{% endblock %}}")
    assert re.match(r"\S+/pytorch\.Dockerfile\.j2:3: ", caught.value.message)
    assert not ran.exists()


@pytest.mark.parametrize("link", ["the template", "an included file", "a folder", "templates/"])
def test_templates_are_not_read_through_links(link: str, tmp_path: Path) -> None:
    own, outside = tmp_path / "templates", tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("RUN a-secret")
    (outside / "pytorch.Dockerfile.j2").write_text(f"{OURS}{{% block end %}}RUN a-secret{{% endblock %}}")
    including = f'{OURS}{{% block end %}}{{% include "NAME" %}}{{% endblock %}}'
    if link == "templates/":
        own.symlink_to(outside)
    else:
        own.mkdir()
        name, target = {
            "the template": ("pytorch.Dockerfile.j2", "pytorch.Dockerfile.j2"),
            "an included file": ("a", "secret"),
            "a folder": ("a", "."),
        }[link]
        (own / name).symlink_to(outside / target)
        if link != "the template":
            (own / "pytorch.Dockerfile.j2").write_text(
                including.replace("NAME", "a/secret" if link == "a folder" else "a")
            )
    with pytest.raises(RenderError, match="is a link") as caught:
        render(*CASES["cpu-runtime"], own)
    assert caught.value.message.startswith(f"{own}")


def test_a_link_to_nothing_does_not_mean_the_toolkits_template(tmp_path: Path) -> None:
    (tmp_path / "pytorch.Dockerfile.j2").symlink_to("nowhere")
    with pytest.raises(RenderError, match="is a link"):
        render(*CASES["cpu-runtime"], tmp_path)


@pytest.mark.parametrize("name", ["pytorch", "other"])
def test_a_template_that_is_not_utf_8_is_told_with_file_and_line(name: str, rendered: Write, tmp_path: Path) -> None:
    rendered(OURS)
    (tmp_path / "pytorch.Dockerfile.j2").write_text('{% include "other.Dockerfile.j2" %}')
    path = tmp_path / f"{name}.Dockerfile.j2"
    path.write_bytes(b"{# #}\n{# \xe4 #}\n")
    with pytest.raises(RenderError, match=f"^{path}:2: is not UTF-8") as caught:
        render(*CASES["cpu-runtime"], tmp_path)
    assert caught.value.hint


def test_two_templates_that_extend_each_other_are_told(rendered: Write) -> None:
    with pytest.raises(RenderError, match="extends itself through other templates"):
        rendered(
            '{% extends "a.Dockerfile.j2" %}', a='{% extends "b.Dockerfile.j2" %}', b='{% extends "a.Dockerfile.j2" %}'
        )


def test_a_row_with_everything_that_can_be_ones_own(rendered: Write, tmp_path: Path) -> None:
    """The Dockerfile equals the reviewed file; TORCHBAKE_UPDATE_GOLDEN=1 updates the file."""
    (tmp_path / "src/acme").mkdir(parents=True)
    block = "{% block before_user %}\nCOPY src/acme /opt/acme\nENV PATH=/opt/acme:$PATH\n{% endblock %}"
    check_golden(GOLDEN / "cpu-own-template.Dockerfile", rendered(OURS + block, "cpu-own"))


def test_the_pages_example_is_a_matrix_and_a_template(tmp_path: Path) -> None:
    section = (TOOLKIT / "docs/how-to/your-own.md").read_text().partition("## Make it yours")[2].partition("\n## ")[0]
    (matrix,), (template,) = (re.findall(rf"```{kind}\n(.*?)```", section, re.DOTALL) for kind in ("yaml", "jinja"))
    for name, content in {
        "matrix.yaml": SMALL + matrix,
        "certificates/acme-root.pem": AUTHORITY,
        "files/job.py": "",
        "files/conf/a.yaml": "",
        "src/acme/__init__.py": "",
        "templates/pytorch.Dockerfile.j2": template,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    project = load_project(tmp_path / "matrix.yaml")
    spec = project.expansion.specs[0]
    assert (spec.own.user.name, len(spec.own.files), spec.own.certificates) == (
        "jovyan",
        2,
        ("certificates/acme-root.pem",),
    )
    text = render(spec, CASES["cpu-runtime"][1], project.templates)
    assert "WORKDIR /app\nCOPY src/acme /opt/acme\nENV PATH=/opt/acme:$PATH\n" in text.partition("\nUSER 2000\n")[0]
    assert set(re.findall(r"(?m)^\| `(\w+)` \|", section)) == set(BLOCKS)
