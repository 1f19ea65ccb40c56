"""The commands of a build. They run by `PYTHONPATH=/run/layers python3 -m wheels`.

- `split LOCK FOLDER [--needs NAME...]`: write a list for each layer of a lock.
- `layers LOCK ROOT`: lay out each wheel in /layers/<wheel>, for ROOT; headers in /headers.
- `site LOCK VENV`: install into a virtual environment.
    - `[--path FOLDER]...`: Python also finds the packages in this folder, and reads its .pth files.
    - `[--start PROGRAM]`: it runs when Python starts without the entrypoint. Python also imports torch faster then, and
      finds the packages of users.
- `venv LOCK VENV`: make a virtual environment with these wheels.
- `project VENV --build VENV --files NAME... --packages FOLDER... [--lock]`: build packages by the wheels of another
  environment, and install them. The files are mounted as /run/own-1, /run/own-2 and so on; with `--lock` the project's
  lock is mounted after them.
- `entries VENV FOLDER ROOT=LOCK...`: list the wheels of a lock, whose files are below ROOT, as installed in VENV. Copy
    FOLDER into VENV.
- `layers` and `site` take `[--trim FILE]`: leave out the files that the rules in FILE drop, except rules with a
  name in `[--keep NAME]...`.
    - `[--platform NAME]`: the wheels' platform, if Python's is another, such as aarch64-manylinux_2_36.
- These two and `venv` take `[--index VARIABLE URL...]`: indexes for wheels that the host's indexes and folders lack.
- `bytecode SOURCES FOLDER ROOT`: compile modules for ROOT, without a copy of the modules.
- `beside FOLDER FINAL TREE...`: link the packages of wheels into the folder of torch.
- `cuda-home FOLDER FINAL TREE...`: make a CUDA_HOME of links into the wheels.
"""

import argparse
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from .contents import WheelError, contents_of
from .entries import pins, write_entries
from .install import download, install
from .links import beside_links, cuda_links
from .lock import split_lock
from .names import canonical_name
from .project import build, copy_files, install_packages, locked_packages, make_environment
from .tree import bytecode_alone, compile_bytecode, normalise, write_files
from .trim import Drop, read_trim, trim

CACHE = Path("/root/.cache/wheels")
LAYERS = Path("/layers")
HEADERS = Path("/headers")
MOUNTS = Path("/run")
PROJECT = Path("/project")
NVIDIA = Path("/nvidia")  # libraries and compilers, which Python does not import
QUICK = Path(__file__).with_name("torchbake_start.py")
USER_SITE = Path(__file__).with_name("torchbake_user_site.py")
# The entrypoint sets LOGNAME, and a matrix may not: without it, Python was started without the entrypoint.
START = "import os; 'LOGNAME' in os.environ or __import__('runpy').run_path({!r})"


def _command_split(args: argparse.Namespace) -> None:
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, text in split_lock(args.lock.read_text(), args.needs).items():
        (args.folder / f"{name}.lock").write_text(text)


def _command_layers(args: argparse.Namespace) -> None:
    for folder in (LAYERS, HEADERS):
        folder.mkdir()
    rules, wheels = _rules(args), download(args.lock, args.index, CACHE, args.platform)
    with ThreadPoolExecutor() as pool:  # zlib lets other threads run
        list(pool.map(partial(_lay_out, rules), wheels))  # list() raises the exceptions of the threads
    for layer in sorted(LAYERS.iterdir()):
        if args.root != NVIDIA:
            compile_bytecode(layer, args.root)
        normalise(layer)
    normalise(HEADERS)


def _rules(args: argparse.Namespace) -> tuple[Drop, ...]:
    return tuple(rule for rule in read_trim(args.trim) if rule.name not in args.keep)


def _lay_out(rules: Sequence[Drop], path: Path) -> None:
    name = canonical_name(path.name.split("-")[0])
    try:
        with zipfile.ZipFile(path) as wheel:
            contents = contents_of(wheel, rules)
            write_files(wheel, contents.layer, LAYERS / name)
            write_files(wheel, contents.headers, HEADERS)
    except (WheelError, zipfile.BadZipFile) as error:
        sys.exit(f"{path.name} cannot be laid out: {error}.")


def _command_site(args: argparse.Namespace) -> None:
    platform = ["--python-platform", args.platform] if args.platform else []
    install(args.lock, args.index, "--python", str(args.venv / "bin/python"), *platform)
    site = _site(args.venv)
    trim(site, _rules(args), HEADERS)
    if args.start:
        for module in (QUICK, USER_SITE):
            shutil.copy(module, site)
        users = f"import {USER_SITE.stem}; {USER_SITE.stem}.enable()"  # after the start, which sets HOME
        paths = (f"import site; site.addsitedir({path!r})" for path in args.path)
        lines = (*paths, f"import {QUICK.stem}", START.format(args.start), users, "")
        (site / "torchbake.pth").write_text("\n".join(lines))
    compile_bytecode(site, site)
    normalise(args.venv)


def _command_venv(args: argparse.Namespace) -> None:
    make_environment(args.venv)
    install(args.lock, args.index, "--python", str(args.venv / "bin/python"))


def _command_project(args: argparse.Namespace) -> None:
    copy_files(args.files, MOUNTS, PROJECT)
    locked = locked_packages((MOUNTS / f"own-{len(args.files) + 1}").read_text()) if args.lock else {}
    with tempfile.TemporaryDirectory() as name:
        wheels, python = Path(name), args.build / "bin/python"
        if not python.exists():  # the packages have no build requirements
            make_environment(args.build)
        built = [build(PROJECT, folder, locked.get(folder), python, wheels) for folder in args.packages]
        install_packages(built, wheels, args.venv)


def _command_entries(args: argparse.Namespace) -> None:
    site = args.folder / _site(args.venv).relative_to(args.venv)
    for root, lock in (word.split("=", 1) for word in args.wheels):
        write_entries(site, root, pins(Path(lock).read_text()))
    normalise(args.folder)


def _site(venv: Path) -> Path:
    return next((venv / "lib").glob("python3.*/site-packages"))


def _command_links(args: argparse.Namespace) -> None:
    files = (file.relative_to(tree) for tree in args.tree for file in tree.rglob("*") if not file.is_dir())
    for where, target in args.links(map(str, files), args.final, args.folder).items():
        Path(where).parent.mkdir(parents=True, exist_ok=True)
        Path(where).symlink_to(target)
    normalise(Path(args.folder))


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="wheels", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for add in (_add_locks, _add_project, _add_links):
        add(commands)
    args = parser.parse_args(argv)
    args.run(args)


def _add_locks(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands that read a lock."""
    split = commands.add_parser("split")
    split.set_defaults(run=_command_split)
    split.add_argument("lock", type=Path)
    split.add_argument("folder", type=Path)
    split.add_argument("--needs", nargs="+", default=[])
    layers = commands.add_parser("layers")
    layers.set_defaults(run=_command_layers)
    layers.add_argument("lock", type=Path)
    layers.add_argument("root", type=Path)
    site = commands.add_parser("site")
    site.set_defaults(run=_command_site)
    site.add_argument("lock", type=Path)
    site.add_argument("venv", type=Path)
    site.add_argument("--path", action="append", default=[])
    site.add_argument("--start")
    environment = commands.add_parser("venv")
    environment.set_defaults(run=_command_venv)
    environment.add_argument("lock", type=Path)
    environment.add_argument("venv", type=Path)
    for command in (layers, site):
        command.add_argument("--trim", type=Path)
        command.add_argument("--keep", action="append", default=[])
        command.add_argument("--platform", default="")
    for command in (layers, site, environment):
        command.add_argument("--index", nargs="+", default=[])
    entries = commands.add_parser("entries")
    entries.set_defaults(run=_command_entries)
    entries.add_argument("venv", type=Path)
    entries.add_argument("folder", type=Path)
    entries.add_argument("wheels", nargs="+")


def _add_project(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    project = commands.add_parser("project")
    project.set_defaults(run=_command_project)
    project.add_argument("venv", type=Path)
    project.add_argument("--build", type=Path, required=True)
    project.add_argument("--files", nargs="+", required=True)
    project.add_argument("--packages", nargs="+", required=True)
    project.add_argument("--lock", action="store_true")


def _add_links(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands that work on laid out wheels."""
    bytecode = commands.add_parser("bytecode")
    bytecode.set_defaults(run=lambda args: bytecode_alone(args.sources, args.folder, args.root))
    bytecode.add_argument("sources", type=Path)
    bytecode.add_argument("folder", type=Path)
    bytecode.add_argument("root", type=Path)
    for name, links in (("beside", beside_links), ("cuda-home", cuda_links)):
        command = commands.add_parser(name)
        command.set_defaults(run=_command_links, links=links)
        command.add_argument("folder")
        command.add_argument("final")
        command.add_argument("tree", type=Path, nargs="+")


if __name__ == "__main__":
    main(sys.argv[1:])
