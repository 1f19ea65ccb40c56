"""The files that a package is built of, by its pyproject.toml. Pure.

The build backends read their own tables. Sources of these: the reference pages of setuptools, hatchling, poetry-core,
flit-core, pdm-backend and uv_build.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import Any, TypeAlias

Table: TypeAlias = Mapping[str, Any]

_METADATA = ("pyproject.toml", "setup.py", "setup.cfg", "MANIFEST.in", "hatch_build.py", "pdm_build.py", "README*")
# The default of `license-files` in PEP 639's backends.
_LICENSES = ("LICEN[CS]E*", "COPYING*", "NOTICE*", "AUTHORS*")
_DYNAMIC = ("requirements*.txt", "VERSION*", "version*")  # read by many a setup.py
# Folders of a flat layout that hold no package: setuptools' FlatLayoutPackageFinder.DEFAULT_EXCLUDE.
_NO_PACKAGES = {
    *("ci", "bin", "debian", "doc", "docs", "documentation", "manpages", "news", "newsfragments", "changelog", "test"),
    *(
        "tests",
        "unit_test",
        "unit_tests",
        "example",
        "examples",
        "scripts",
        "tools",
        "util",
        "utils",
        "python",
        "build",
    ),
    *("benchmark", "benchmarks", "exercise", "exercises", "htmlcov", "tasks", "fabfile", "notebooks", "data", "dist"),
    *("env", "venv"),
}
_NO_MODULES = {
    "setup",
    "conftest",
    "noxfile",
    "tasks",
    "fabfile",
    "toxfile",
    "dodo",
    "pavement",
    "pdm_build",
    "hatch_build",
}
_GLOB = re.compile(r"[*?\[]")


def package_files(pyproject: Table, files: Sequence[str]) -> list[str]:
    """Return the paths that a package is built of; a folder's path ends in a slash.

    ``files`` are the paths of all its files, relative to its folder.
    """
    top = [path for path in files if "/" not in path]
    patterns = [*_METADATA, *_LICENSES, *(_DYNAMIC if "setup.py" in top else ())]
    metadata = [path for path in top if any(fnmatchcase(path, pattern) for pattern in patterns)]
    metadata += _existing(_texts(pyproject), files)
    sources = _existing(_sources(pyproject), files) or _found_sources(pyproject, files)
    return list(dict.fromkeys((*sorted(dict.fromkeys(metadata), key=lambda path: path != "pyproject.toml"), *sources)))


def _existing(patterns: Iterable[str], files: Sequence[str]) -> list[str]:
    """Return the file or folder that each pattern names, or the folder of a pattern such as ``src/app/**``."""
    paths = list[str]()
    for pattern in patterns:
        path = posixpath.normpath(pattern).lstrip("/")
        parts = list(takewhile(lambda part: not _GLOB.search(part), path.split("/")))
        folder = "/".join(parts) + "/"
        if path in files:
            paths.append(path)
        elif parts:
            paths += [folder] if any(file.startswith(folder) for file in files) else []
        elif not path.startswith(("*/", "**")):  # such a pattern names no place
            names = dict.fromkeys(file.partition("/")[0] + ("/" if "/" in file else "") for file in files)
            paths += [name for name in names if fnmatchcase(name.rstrip("/"), path.split("/")[0])]
    return paths


def _texts(pyproject: Table) -> Iterator[str]:
    """Yield the files that the metadata is read from."""
    project, tools = table_of(pyproject, "project"), table_of(pyproject, "tool")
    for value in (project.get("readme"), project.get("license"), table_of(tools, "poetry").get("readme")):
        yield from texts_of(value.get("file") if isinstance(value, Mapping) else value)
    yield from texts_of(project.get("license-files"))
    for value in table_of(tools, "setuptools", "dynamic").values():
        yield from texts_of(value.get("file") if isinstance(value, Mapping) else None)
    yield from texts_of(table_of(tools, "hatch", "version").get("path"))


def _sources(pyproject: Table) -> Iterator[str]:
    """Yield the folders and modules that a build backend's table names."""
    tools = table_of(pyproject, "tool")
    yield from _of_setuptools(table_of(tools, "setuptools"))
    for hatch in (table_of(tools, "hatch", "build"), table_of(tools, "hatch", "build", "targets", "wheel")):
        for key in ("packages", "only-include", "include", "force-include"):
            yield from texts_of(hatch.get(key))
    for entry in _tables(table_of(tools, "poetry").get("packages")):
        yield posixpath.join(str(entry.get("from", "")), str(entry.get("include", "")))
    for entry in _tables(table_of(tools, "poetry").get("include")):
        yield from texts_of(entry.get("path"))
    for module in texts_of(table_of(tools, "flit", "module").get("name")):
        yield from (f"src/{module}", module, f"{module}.py")
    pdm = table_of(tools, "pdm", "build")
    yield from (*texts_of(pdm.get("package-dir")), *texts_of(pdm.get("includes")))
    uv = table_of(tools, "uv", "build-backend")
    if {"module-root", "module-name"} & uv.keys():
        name = uv.get("module-name", _module(pyproject))
        for module in texts_of(name):
            yield posixpath.join(str(uv.get("module-root", "src")), module.partition(".")[0])


def _of_setuptools(table: Table) -> Iterator[str]:
    folders = table_of(table, "package-dir")
    root = str(folders.get("", ""))
    packages = table.get("packages")
    yield from (str(folder) for folder in folders.values())
    if isinstance(packages, Mapping):
        find = table_of(packages, "find")
        places = [place for place in texts_of(find.get("where")) if posixpath.normpath(place) != "."]
        yield from places or texts_of(find.get("include"))
    for name in texts_of(packages if isinstance(packages, list) else None):
        yield folders.get(name) or posixpath.join(root, name.partition(".")[0])
    for name in texts_of(table.get("py-modules")):
        yield posixpath.join(root, f"{name}.py")


def _found_sources(pyproject: Table, files: Sequence[str]) -> list[str]:
    """Return the sources that backends find by themselves: ``src/``, the package's name, or each Python package."""
    python = [path for path in files if path.endswith(".py")]
    folders = dict.fromkeys(path.partition("/")[0] for path in python if "/" in path)
    modules = [path for path in python if "/" not in path and path.removesuffix(".py") not in _NO_MODULES]
    name = _module(pyproject)
    if "src" in folders:
        return ["src/"]
    if name in folders or f"{name}.py" in modules:
        return [f"{name}/" if name in folders else f"{name}.py"]
    packages = [f"{folder}/" for folder in folders if folder not in _NO_PACKAGES and not folder.startswith((".", "_"))]
    return packages or modules


def _module(pyproject: Table) -> str:
    """Return the module that a package is named after, as backends derive it."""
    name = table_of(pyproject, "project").get("name") or table_of(pyproject, "tool", "poetry").get("name") or ""
    return re.sub(r"[-_.]+", "_", str(name)).lower()


def table_of(data: Table, *keys: str) -> Table:
    """Return a table of a document; empty if it is missing, or is no table."""
    for key in keys:
        value = data.get(key)
        data = value if isinstance(value, Mapping) else {}
    return data


def _tables(value: Any) -> Iterator[Table]:
    """Yield the tables of a list, where a text means a table with this ``path``."""
    for entry in value if isinstance(value, list) else ():
        yield entry if isinstance(entry, Mapping) else {"path": str(entry)}


def texts_of(value: Any) -> tuple[str, ...]:
    """Return a text, or the texts of a list or the keys of a table."""
    if isinstance(value, str):
        return (value,)
    return tuple(map(str, value)) if isinstance(value, list | Mapping) else ()
