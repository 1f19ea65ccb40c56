"""Run uv on a project: export its lock, or resolve its requirements. No code of a package runs."""

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torchbake.core.files import in_memory
from torchbake.core.plain_text import last_lines
from torchbake.errors import LockError
from torchbake.hostconfig.pip_config import PipConfig, without_login
from torchbake.hostconfig.uv_config import uv_toml
from torchbake.lock.lockfile import parse_pins
from torchbake.lock.project_inputs import uv_indexes
from torchbake.lock.uv import run_uv, uv_platform
from torchbake.matrix.spec import AMD64, ProjectSpec

# Pins may be wheels for a newer C library than that of all bases: this is the newest platform that uv knows.
_NEWEST = ("--python-platform", "x86_64-manylinux_2_40")
_PYLOCK = ("--format", "pylock.toml")
# Settings of a project for a resolution: https://docs.astral.sh/uv/reference/settings/
_SETTINGS = (
    *("constraint-dependencies", "override-dependencies", "exclude-newer", "fork-strategy", "prerelease", "resolution"),
)
_INDEX = ("name", "url", "explicit", "default", "format", "authenticate")


def export_uv_lock(folder: Path, project: ProjectSpec) -> tuple[str, str]:
    """Export a project's uv.lock with its groups and extras: as a pylock.toml, and as requirements with ``# via``.

    uv reads only files of the project, and changes none. Raises LockError with uv's message.
    """
    words = ["export", "--frozen", "--offline", "--quiet", "--no-header", "--no-default-groups"]
    words += _choices(project, "")
    hint = f"Correct `project:` of the row, or lock again: uv lock --project {project.folder}"
    document = _run(folder, [*words, *_PYLOCK], project.lock_path, PipConfig(), hint=hint)
    return document, _run(folder, [*words, "--no-hashes"], project.lock_path, PipConfig(), hint=hint)


def look_up(versions: Mapping[str, str], path: str, python: str, config: PipConfig) -> str:
    """Return a pylock.toml with the files that the indexes have for these versions, without their dependencies.

    ``path`` is the lock that has the versions. Raises LockError with uv's message.
    """
    hint = "Lock versions that an index has, or name the index in the row's `indexes:` or in pip's settings."
    words = ["--no-deps", *_PYLOCK, *_NEWEST, "-"]
    return _compile(Path("/"), words, path, python, config, requirements=exactly(versions), hint=hint)


def requirers(requirements: Iterable[str], sdists: Mapping[str, str], path: str, python: str, config: PipConfig) -> str:
    """Return requirements with ``# via`` for packages of one version each: what requires each, by the indexes.

    ``sdists`` are the versions of packages without a wheel, whose own requirements are not read. Raises LockError.
    """
    words = [*_NEWEST, "--only-binary", ":all:", *(word for name in sdists for word in ("--no-binary", name)), "-"]
    metadata = [{"name": name, "version": version, "requires-dist": []} for name, version in sdists.items()]
    tables = _tables("dependency-metadata", metadata)
    hint = "Lock the project again with a tool that resolves: uv pip compile, pip-compile or uv lock."
    return _compile(Path("/"), words, path, python, config, requirements=requirements, tables=tables, hint=hint)


def exactly(versions: Mapping[str, str]) -> list[str]:
    """Return pins. ``==`` would also fit a local version, such as ``2.13.0+cpu``, which is another wheel."""
    return [f"{name}==={version}" for name, version in versions.items()]


def resolve_project(
    folder: Path,
    project: ProjectSpec,
    python: str,
    config: PipConfig,
    *,
    previous: Iterable[str],
    exclude: Iterable[str],
    settings: Mapping[str, Any],
) -> tuple[str, str]:
    """Resolve a pyproject.toml without a lock: as a pylock.toml, and as requirements with ``# via``.

    ``previous`` are pins to keep if they fit, ``exclude`` are requirements such as ``torch!=2.13.0+cpu``, and
    ``settings`` is the table ``tool.uv``. Raises LockError.
    """
    hint = f"Correct {project.lock_path}, or lock the project and name its lock: uv lock --project {project.folder}"
    with tempfile.TemporaryDirectory(prefix="torchbake-lock-") as name:
        pins, excluded = Path(name) / "requirements.lock", Path(name) / "constraints.txt"
        pins.write_text("\n".join(previous))
        excluded.write_text("\n".join(exclude))
        words = [project.lock, "--only-binary", ":all:", "--constraints", str(excluded)]
        words += _choices(project, f"{project.lock}:")
        tables, others = _settings(settings, config), _without_indexes(config, settings)
        compile_now = partial(_compile, folder, path=project.lock_path, python=python, config=others, hint=hint)
        compile_now([*words, "--output-file", str(pins)], tables=tables)
        requirements = pins.read_text()
        excluded.write_text("\n".join(exactly({pin.name: pin.version for pin in parse_pins(requirements)})))
        return compile_now([*words, *_PYLOCK], tables=tables), requirements


def _choices(project: ProjectSpec, of_file: str) -> list[str]:
    """Return uv's arguments for the extras and groups; ``of_file`` is the prefix of a group."""
    extras = [word for name in project.extras for word in ("--extra", name)]
    extras += ["--package", project.package] if project.package else []
    return extras + [word for name in project.groups for word in ("--group", f"{of_file}{name}")]


def _settings(settings: Mapping[str, Any], config: PipConfig) -> str:
    """Return the part of ``tool.uv`` for a uv.toml: with such a file uv reads no other settings.

    The indexes get the logins of ``config``.
    """
    lines = [f"{key} = {_toml(settings[key])}\n" for key in _SETTINGS if key in settings]
    tables = [{key: each[key] for key in _INDEX if key in each} for each in uv_indexes(settings)]
    tables = [{**each, "url": config.with_login(each["url"])} for each in tables]
    return "".join(lines) + _tables("index", tables)


def _without_indexes(config: PipConfig, settings: Mapping[str, Any]) -> PipConfig:
    """Return the host's settings without the project's indexes: one with ``explicit`` is not for all packages."""
    own = {without_login(each["url"]).rstrip("/") for each in uv_indexes(settings)}
    others = (url for url in config.extra_index_urls if without_login(url).rstrip("/") not in own)
    return replace(config, extra_index_urls=tuple(others))


def _tables(name: str, tables: Sequence[Mapping[str, Any]]) -> str:
    """Return an array of TOML tables."""
    return "".join(
        f"[[{name}]]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in table.items()) for table in tables
    )


def _toml(value: Any) -> str:
    """Return a value for TOML: a text, a list of texts and a boolean are the same in JSON. A date becomes a text."""
    return json.dumps(value, default=str)


def _compile(
    folder: Path,
    words: Sequence[str],
    path: str,
    python: str,
    config: PipConfig,
    *,
    hint: str,
    tables: str = "",
    requirements: Iterable[str] = (),
) -> str:
    """Run `uv pip compile` with this host's settings. It reads ``requirements`` if ``words`` name ``-``."""
    command = ["pip", "compile", "--quiet", "--no-header", "--python-version", python, *words]
    if "--python-platform" not in words:
        command += ["--python-platform", uv_platform(AMD64)]
    with in_memory(uv_toml(config) + tables) as settings:
        return _run(folder, [*command, "--config-file", str(settings)], path, config, hint=hint, lines=requirements)


def _run(
    folder: Path, words: Sequence[str], path: str, config: PipConfig, *, hint: str, lines: Iterable[str] = ()
) -> str:
    """Run uv in a folder, and return its output. Raises LockError with uv's message about the lock ``path``."""
    process = run_uv(words, config, lines=lines, folder=folder)
    if process.returncode:
        raise LockError(f"{path}: uv: {last_lines(process.stderr)}", hint=config.refusal_hint(process.stderr) or hint)
    return process.stdout
