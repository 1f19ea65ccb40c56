"""The steps of an image's Dockerfile in which apt installs packages. Pure."""

from dataclasses import dataclass

from torchbake.matrix.spec import BaseSpec, InitSpec, Spec

NAMES = ("compile", "system", "compiler", "added", "packages", "builder")


@dataclass(frozen=True, kw_only=True)
class AptStep:
    """A step: the name for its package files, its packages, and the packages of the steps below it."""

    name: str
    packages: tuple[str, ...]
    below: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The step in a lock. Images with an equal step share its packages, and the layer."""
        return " ".join(self.packages) + (f" after {' '.join(self.below)}" if self.below else "")


def apt_steps(spec: Spec) -> dict[str, AptStep]:
    """Return the steps of an image by name, without empty ones: each is based on those before it.

    `builder` is in a stage beside the image, which is based on the first step.
    Packages with a version in the matrix are in the first step, since apt would have to downgrade them later.
    """
    if isinstance(spec, InitSpec):
        binutils = ("binutils",) if spec.base.distribution == "ubuntu" else ()
        return {"compile": AptStep(name="compile", packages=(*binutils, "musl-tools"))}
    versions = {package.partition("=")[0]: package for package in spec.apt if "=" in package}
    added = {versions.get(name, name) for name in spec.apt_of_all}
    system = {versions.get(name, name) for name in system_packages(spec.base)} | {name for name in added if "=" in name}
    compiler = {versions.get(name, name) for name in compiler_packages(spec.base) if spec.compiler} - system
    groups = {
        "system": system,
        "compiler": compiler,
        "added": added - system - compiler,
        "packages": {*spec.apt} - system - compiler - added,
    }
    steps, below = dict[str, AptStep](), tuple[str, ...]()
    for name, packages in groups.items():
        if packages:
            steps[name] = AptStep(name=name, packages=tuple(sorted(packages)), below=below)
            below += steps[name].packages
    if spec.base.interpreter and not spec.base.brings_python:
        # A builder's Python needs venv to make environments, which a package for another version may lack.
        venv = (f"{spec.base.python_package}-venv",)
        steps["builder"] = AptStep(name="builder", packages=venv, below=steps["system"].packages)
    return steps


def system_packages(base: BaseSpec) -> tuple[str, ...]:
    """Return the Debian packages of every image on a base."""
    return ("ca-certificates", *filter(None, [base.python_package]), "python3-pip-whl", "tini")


def compiler_packages(base: BaseSpec) -> tuple[str, ...]:
    """Return the Debian packages of a compiler: g++ depends on gcc. A base's own Python brings its headers."""
    return ("g++", *([f"lib{base.python_package}-dev"] if base.python_package else []))
