"""Dockerfiles on other bases than Debian's own: what differs, and that nothing else does."""

import difflib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.conftest import DEBIAN12, SMALL, image, init_image
from tests.unit.render.test_dockerfile import lock
from torchbake.core.paths import TOOLKIT
from torchbake.matrix.expand import expand
from torchbake.matrix.model import validate_matrix
from torchbake.matrix.platforms import bases_of
from torchbake.matrix.spec import BaseSpec
from torchbake.matrix.yaml_source import parse_document
from torchbake.render.dockerfile import render

APT = "    /run/apt-install "
SYSTEM = f"{APT}ca-certificates python3 python3-pip-whl tini"
UV = "    python3 /run/install_uv.py /run/builder.lock /run/wheels /opt/uv \\"
VENV = "    && python3 -m venv --without-pip /opt/venv"
SOURCES = "    --mount=type=secret,id=apt-sources,target=/etc/apt/sources.list.d/ubuntu.sources \\"


def added(base: BaseSpec) -> list[str]:
    """Return the lines that an image on this base has, and the same image on Debian 12 has not; each once, in order."""
    before, after = (render(image("2.13.0", "cpu", base=each), lock("cpu")) for each in (DEBIAN12, base))
    matches = (line[2:] for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line.startswith("+ "))
    return list(dict.fromkeys(matches))


def test_ubuntu_has_its_own_sources_and_no_user_of_its_own() -> None:
    lines = added(replace(DEBIAN12, distribution="ubuntu"))
    reason = "if id ubuntu >/dev/null 2>&1; then userdel --remove ubuntu; fi && /run/apt-install "
    assert lines == [SOURCES, SYSTEM.replace("/run/apt-install ", reason)]  # which removes what userdel leaves


def test_common_additions_precede_python_except_for_downgrades() -> None:
    spec = image("2.13.0", "cpu", apt_of_all=("git", "libssl3"), apt=("git", "libssl3=3.0.2", "tini=0.19"))
    text = render(spec, lock("cpu"))
    assert f"{APT}ca-certificates libssl3=3.0.2 python3 python3-pip-whl tini=0.19\n" in text
    assert f"{APT}git\n" in text
    assert text.count(APT) == 3, "with the compiler"


def test_a_program_on_ubuntu_is_assembled_by_binutils() -> None:
    text = render(replace(init_image(), base=replace(DEBIAN12, distribution="ubuntu")), None)
    assert SOURCES in text
    assert "/run/apt-install --scratch binutils musl-tools\n" in text


def test_a_python_of_the_image_comes_in_no_package() -> None:
    own = "/opt/python/bin/python3.11"
    lines = added(replace(DEBIAN12, interpreter=own))
    compiler = f"{APT}--trim g++"  # whose headers of Python are the image's own
    system, uv, venv = SYSTEM.replace("python3 ", ""), UV.replace("python3", own), VENV.replace("python3", own)
    assert lines[:4] == [system, compiler, uv, venv]
    assert all(f"{own} -m " in line for line in lines[3:])


def test_a_python_of_another_package_is_called_python3() -> None:
    lines = added(replace(DEBIAN12, interpreter="python3.11"))
    name = "ln -sf /usr/bin/python3.11 /usr/local/bin/python3 && /run/apt-install "
    system = SYSTEM.replace("/run/apt-install ", name).replace("python3 python3-pip-whl", "python3-pip-whl python3.11")
    assert system in lines
    assert "WORKDIR /builder" in lines, "a place for the locked packages of this step"
    assert f"{APT}--scratch python3.11-venv \\" in lines
    assert UV.replace("    python3", "    && python3.11") in lines


@pytest.mark.parametrize("interpreter", ["/usr/local/bin/python3.11", "python3.11"])
def test_no_step_runs_another_python(interpreter: str) -> None:
    text = render(image("2.13.0", "cpu", base=replace(DEBIAN12, interpreter=interpreter)), lock("cpu"))
    assert " python3 -m" not in text


def test_the_pages_examples_are_bases() -> None:
    section = (TOOLKIT / "docs/how-to/your-own.md").read_text().partition("## A base of your own")[2]
    (bases,) = re.findall(r"```yaml\nbases:\n(.*?)```", section, re.DOTALL)
    names = re.findall(r"(?m)^  (\S+):", bases)
    text = SMALL.replace("bases:\n", f"bases:\n{bases}").replace("base: debian12\n", f"base: [{', '.join(names)}]\n")
    document = parse_document(text, Path("matrix.yaml"))
    matches = {base.name: base for base in bases_of(expand(validate_matrix(document), document).specs)}
    assert {*names} < {*matches}
    assert {name: (matches[name].python, matches[name].python_package) for name in names} == {
        "ubuntu24.04": ("3.12", "python3"),
        "hardened": ("3.11", "python3"),
        "py312": ("3.12", ""),
        "noble313": ("3.13", "python3.13"),
    }
