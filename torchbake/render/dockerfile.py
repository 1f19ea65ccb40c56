"""Render the Dockerfile of an image from its spec and its lock. Pure and deterministic."""

import re
from pathlib import Path
from typing import Any

from torchbake.debian.steps import NAMES, apt_steps
from torchbake.errors import RenderError
from torchbake.lock.lockfile import Lock
from torchbake.lock.needs import BUILD, NEEDS, wheels_by_stage
from torchbake.lock.project_content import copied_files, project_sources
from torchbake.lock.project_inputs import kind_of
from torchbake.lock.uv import NEWEST_GLIBC, uv_platform
from torchbake.lock.wheel_tags import glibc_of
from torchbake.matrix.added_paths import certificate_name
from torchbake.matrix.settings import CA_VARIABLES
from torchbake.matrix.spec import AMD64, NATIVE, TOOLBOX, VENV, ImageSpec, InitSpec, Spec, User
from torchbake.matrix.wheel_indexes import variable
from torchbake.oci.labels import BASE, COMPILER, LABEL, VERSION_LABEL
from torchbake.render.installers import CONSTRAINT_FILES, installer_files
from torchbake.render.template_check import check_template
from torchbake.render.template_marks import origins_of
from torchbake.render.templates import fill, fill_marked
from torchbake.render.wheel_groups import HEAVY, TORCH, kept_rules, wheel_groups
from torchbake.ui.command import Command

HEADER = "Rendered by torchbake from matrix.yaml and templates/: edit those, then run `nox -s render`."
CUDA_HOME = "/usr/local/cuda"
_USERS_GONE = "if id ubuntu >/dev/null 2>&1; then userdel --remove ubuntu; fi && "  # Ubuntu's images have it, as 1000
PROFILE = f"{TOOLBOX}/profile"  # bash reads it when it starts; `docker exec` runs no entrypoint
CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"  # Debian's; update-ca-certificates writes it again
# Stages that install one virtual environment together.
_SITES = {
    NEEDS: "what torch and its libraries ask for: the same for many versions of torch, and in all flavors of a base",
    "site": "everything else, in a virtual environment that finds the layers above",
}


def dockerfile_path(root: Path, spec: Spec) -> Path:
    return root / "images" / spec.id / "Dockerfile"


def render(spec: Spec, lock: Lock | None, templates: Path | None = None) -> str:
    """Render the Dockerfile of an image; ``lock`` is None for init images. Raises RenderError.

    Templates in ``templates``, a folder of the project, replace the toolkit's of the same name.
    """
    name = f"{spec.template}.Dockerfile.j2"
    if isinstance(spec, InitSpec):
        values = {"labels": _labels(spec, {}, title=spec.name), "usual_uid": User().uid}
    else:
        values = _image_values(spec, _require(spec, lock))
    steps = apt_steps(spec)
    values |= {"apt": {name: steps[name].packages if name in steps else () for name in NAMES}}
    values = {"header": HEADER, "spec": spec, "user": spec.own.user, **values}
    text = fill(name, templates, values).rstrip("\n") + "\n"
    if templates and (marked := fill_marked(name, templates, values)) is not None:
        check_template(text, origins_of(text, marked), spec, templates, lambda: fill(name, None, values))
    return text


def _require(spec: ImageSpec, lock: Lock | None) -> Lock:
    if lock is None:
        raise RenderError(f"{spec.id}: cannot be rendered without its lock.", hint=f"Run: {Command('lock', spec.id)}")
    return lock


def _image_values(spec: ImageSpec, lock: Lock) -> dict[str, Any]:
    groups, base = wheel_groups(lock), spec.base
    own_python = base.python_package if base.interpreter else ""  # not the suite's own package
    stages = wheels_by_stage(spec, lock)
    sites = {stage: comment for stage, comment in _SITES.items() if stage in stages}
    return {
        "summary": summary(spec, lock),
        # A flavor that builds extensions has the whole of the compiler.
        "compiler_trim": spec.trim and not spec.headers,
        "python": base.python_command,
        **_native_values(spec),
        # Such a package has no `python3`, the command that compiles bytecode.
        "python_named": f"ln -sf /usr/bin/{own_python} /usr/local/bin/python3 && " if own_python else "",
        "users_gone": _USERS_GONE if base.distribution == "ubuntu" else "",
        "venv": VENV,
        "toolbox": TOOLBOX,
        "groups": groups,
        "kept_rules": kept_rules(spec.platform),
        "index": [variable(str(spec.accelerator)), *spec.indexes] if spec.indexes else [],
        "needs": [pin.name for pin in stages.get(NEEDS, ())],
        "sites": list(sites.items()),
        "wheel_folders": ["builder", *(group.layer for group in groups), *sites, *([BUILD] if lock.build else [])],
        "copies": [(group, f"/layers/{pin.name}") for group in groups for pin in lock.layers[group.layer]],
        "roots": list(dict.fromkeys(group.root for group in reversed(groups))),
        "files": [(file, f"{file.uid(spec.own.user)}:0") for file in spec.own.files],
        "copied_files": [(file, f"{file.uid(spec.own.user)}:0") for file in copied_files(spec, lock)],
        "package": _package_values(spec, lock),
        "certificates": [(source, certificate_name(source)) for source in spec.own.certificates],
        "installer_files": installer_files(spec, lock),
        "beside": bool(lock.layers["nvidia"]),
        "cuda_home": CUDA_HOME if spec.headers and lock.cuda else "",
        "environment": _environment_variables(spec, lock),
        "labels": _labels(spec, _versions(spec, lock), title=f"PyTorch {spec.torch} {spec.accelerator} {spec.flavor}"),
    }


def _native_values(spec: ImageSpec) -> dict[str, str]:
    """Return the values of the stages on the platform of the machine that builds; empty texts if there are none."""
    native = NATIVE if spec.platform != AMD64 else ""
    return {
        "native": native,
        "native_debs": f"{native}-debs" if native else "debs",
        "interpreter": spec.interpreter_stage,
        "wheel_platform": uv_platform(spec.platform, min(glibc_of(spec.base.suite), NEWEST_GLIBC)) if native else "",
    }


def _package_values(spec: ImageSpec, lock: Lock) -> dict[str, Any] | None:
    """Return the values of the stage that builds a project's packages; None without packages."""
    project = spec.project
    if project is None or not lock.packages:
        return None
    if not project.files:
        raise RenderError(
            f"matrix.yaml:{spec.line}: {spec.id}: the project has packages ({', '.join(lock.packages)}), but no files "
            "to build them of.",
            hint="Name its files in the row, such as `project: {files: [pyproject.toml, src/]}`.",
        )
    return {
        "sources": project_sources(project),
        "folders": lock.packages,
        "build": bool(lock.build),
        # A requirements file has no versions of packages that are folders.
        "lock": project.lock_path if kind_of(project.lock) in ("uv", "pylock") else "",
    }


def summary(spec: ImageSpec, lock: Lock) -> str:
    """Return an image's versions: ``torch 2.10.0, CUDA 12.8.90, cuDNN 9.10.2.21, NCCL 2.27.5, Python 3.11``."""
    names = {"cuda": "CUDA", "cudnn": "cuDNN", "nccl": "NCCL", "python": "Python"}
    return ", ".join(f"{names.get(key, key)} {value}" for key, value in _versions(spec, lock).items() if value)


def promised_labels(spec: Spec, lock: Lock | None) -> dict[str, str]:
    """Return the labels that an image must have: torchbake's and the version, except labels that a build fills in.

    ``lock`` is None for init images. Raises RenderError.
    """
    versions = {} if isinstance(spec, InitSpec) else _versions(spec, _require(spec, lock))
    labels = dict(_labels(spec, versions, title=""))
    ours = (key for key in labels if key.startswith(f"{LABEL}.") or key == VERSION_LABEL)
    return {key: labels[key] for key in ours if not labels[key].startswith("${")} | dict(spec.own.labels)


def _versions(spec: ImageSpec, lock: Lock) -> dict[str, str | None]:
    return {
        "torch": lock.pins["torch"].version,
        "cuda": lock.cuda,
        "cudnn": lock.cudnn,
        "nccl": lock.nccl,
        "python": spec.base.python,
    }


def _environment_variables(spec: ImageSpec, lock: Lock) -> list[tuple[str, str]]:
    cuda_programs = [f"{CUDA_HOME}/bin"] if spec.headers and lock.cuda else []
    large = [f"{HEAVY.root}/bin"] if lock.layers["heavy"] else []
    programs = [f"{VENV}/bin", f"{TORCH.root}/bin", *cuda_programs, *large, TOOLBOX]
    variables = {
        "HOME": spec.own.user.home,
        "LANG": "C.UTF-8",
        "BASH_ENV": PROFILE,
        "PATH": ":".join((*programs, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHON_VERSION": spec.base.python,
        "TORCHBAKE_ID": spec.id,
        # With another Python uv would replace the environment, and torch with it.
        "UV_PROJECT_ENVIRONMENT": VENV,
        "UV_PYTHON_DOWNLOADS": "never",
        "VIRTUAL_ENV": VENV,
    }
    if lock.cuda:
        variables |= {
            "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
            # CUDA runs on every driver of its major version: https://docs.nvidia.com/deploy/cuda-compatibility/
            "NVIDIA_REQUIRE_CUDA": f"cuda>={spec.accelerator.version[0]}.0",
            "NVIDIA_VISIBLE_DEVICES": "all",
        }
    if not spec.headers:  # addr2line takes a second for each C++ stack; without it torch would lose an error's message
        variables["TORCH_DISABLE_ADDR2LINE"] = "1"
    if spec.own.certificates:
        variables |= dict.fromkeys(CA_VARIABLES, CA_BUNDLE)
    if spec.constraints:
        variables |= CONSTRAINT_FILES
    if cuda_programs:
        variables["CUDA_HOME"] = CUDA_HOME
    return sorted({**variables, **{name: escape(value) for name, value in spec.own.env}}.items())


def _labels(spec: Spec, versions: dict[str, str | None], *, title: str) -> list[tuple[str, str]]:
    image = "org.opencontainers.image"
    labels = {
        f"{image}.title": title,
        VERSION_LABEL: spec.own_tag,
        f"{image}.licenses": spec.licenses,
        f"{image}.source": spec.source,
        f"{image}.revision": "${REVISION}",
        f"{image}.created": "${CREATED}",
        f"{image}.base.name": "scratch" if spec.from_scratch else "${BASE_NAME}",
        f"{image}.base.digest": None if spec.from_scratch else "${BASE_DIGEST}",
        BASE: None if spec.from_scratch else "${BASE_SOURCE}",
        f"{LABEL}.id": spec.id,
        f"{LABEL}.inputs": "${INPUTS}",
        f"{LABEL}.flavor": spec.flavor,
        COMPILER: "true" if isinstance(spec, ImageSpec) and spec.compiler else None,
        **{f"{LABEL}.{key}": value for key, value in versions.items()},
    }
    filled = {key: value for key, value in labels.items() if value}
    return sorted({**filled, **{key: escape(value) for key, value in spec.own.labels}}.items())


def escape(text: str) -> str:
    r"""Escape `\`, `"` and `$` for double quotes in a Dockerfile."""
    return re.sub(r'[\\"$]', r"\\\g<0>", text)
