"""The steps in which apt installs packages: their order, and the packages that a matrix adds."""

from dataclasses import replace

from tests.unit.builds import INIT, RUNTIME, spec_of
from torchbake.debian.steps import AptStep, apt_steps
from torchbake.matrix.project import Project
from torchbake.matrix.spec import ImageSpec


def image(project: Project) -> ImageSpec:
    spec = spec_of(project, RUNTIME)
    assert isinstance(spec, ImageSpec)
    return spec


def test_each_step_is_based_on_those_before_it(project: Project) -> None:
    spec = replace(image(project), apt=("libgl1", "git"), apt_of_all=("git",))
    steps = apt_steps(spec)
    assert [*steps] == ["system", "compiler", "added", "packages"]
    system, compiler = steps["system"].packages, steps["compiler"].packages
    assert steps["packages"] == AptStep(name="packages", packages=("libgl1",), below=(*system, *compiler, "git"))
    assert steps["compiler"].below == system


def test_a_package_with_a_version_is_in_the_first_step(project: Project) -> None:
    steps = apt_steps(replace(image(project), apt=("git=1:2.39.5-0+deb12u2", "tini=0.19.0-1+b3"), apt_of_all=("git",)))
    assert {"git=1:2.39.5-0+deb12u2", "tini=0.19.0-1+b3"} <= {*steps["system"].packages}
    assert "added" not in steps
    assert "tini" not in steps["system"].packages


def test_a_builder_has_venv_for_another_python(project: Project) -> None:
    spec = image(project)
    assert "builder" not in apt_steps(spec)
    steps = apt_steps(replace(spec, base=replace(spec.base, interpreter="python3.12")))
    assert steps["builder"] == AptStep(name="builder", packages=("python3.12-venv",), below=steps["system"].packages)


def test_an_init_image_has_a_compiler_alone(project: Project) -> None:
    spec = spec_of(project, INIT)
    assert [step.packages for step in apt_steps(spec).values()] == [("musl-tools",)]
    ubuntu = replace(spec, base=replace(spec.base, distribution="ubuntu"))
    assert [step.packages for step in apt_steps(ubuntu).values()] == [("binutils", "musl-tools")]
