"""The command `keep-torch`: checks what an installer would install, then starts it."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from ..payloads.command_line import Parser
from .entry import image_torch, relabel
from .judge import packages_to_keep, refusal
from .plan import BY_CONSTRAINTS, COMMANDS, Installer, dry_run, installer_of, to_install

REFUSED_CODE = 2
_MISSING_CODE = 127  # as a shell says that there is no such command
_GET_UV = " Add it: COPY --from=ghcr.io/astral-sh/uv /uv /usr/local/bin/"
_EPILOG = f"""\
commands: {", ".join(COMMANDS)}

The command runs only if it keeps the image's torch and CUDA. If it would install another torch, keep-torch says so,
downloads nothing, and ends with code {REFUSED_CODE}. PyPI's torch and that of PyTorch's index for the image's CUDA are
the same torch: the image's gets the label of the project's lock (2.10.0 and 2.10.0+cu128, for example).

examples:
  keep-torch uv sync --frozen
  keep-torch pip install -r requirements.txt
"""


class RefusalError(Exception):
    """A reason not to start the command."""


def main(argv: Sequence[str]) -> int:
    """Run a command that keeps torch, in place of this process. Return a code if it is not started."""
    parser = Parser("keep-torch", "Installs a project only if that keeps the image's torch.", _EPILOG)
    parser.add_argument(
        "--any-build", action="store_true", default=False,
        help="accept the image's build of torch where the project's lock has another one (CPU, another CUDA)",
    )  # fmt: skip
    parser.add_argument("command", nargs="...", help="the command of an installer, with its options")
    args = parser.parse_args(argv)
    command = list(args.command)
    installer = installer_of(command)
    if not installer and not any(tuple(command[: len(words)]) == words for words in BY_CONSTRAINTS):
        parser.error(f"it runs {', '.join(COMMANDS)}, not {' '.join(command[:3]) or 'nothing'}")
    if not shutil.which(command[0]):
        print(f"keep-torch: {command[0]} is not there.{_GET_UV if command[0] == 'uv' else ''}", file=sys.stderr)
        return _MISSING_CODE
    try:
        command = _checked(command, installer, any_build=args.any_build)
    except RefusalError as reason:
        print(f"keep-torch: {reason}", file=sys.stderr)
        return REFUSED_CODE
    except OSError as error:
        print(f"keep-torch: {error.filename}: {error.strerror}. Is the step root's (USER root)?", file=sys.stderr)
        return REFUSED_CODE
    sys.stdout.flush()
    return os.execvp(command[0], command)


def _checked(command: list[str], installer: Installer | None, *, any_build: bool) -> list[str]:
    """Return the command to run. Raises RefusalError, and OSError if torch cannot get another label."""
    site = Path(sysconfig.get_path("purelib"))
    torch = image_torch(site)
    if torch is None:
        raise RefusalError(
            f"another torch was installed into {site} before, or torch was removed. Start FROM the image."
        )
    if installer is None:
        if not _constraints():
            raise RefusalError("this image lets pip and uv replace torch (`constraints: false` in its matrix).")
        relabel(site, torch.build, _constraints())
        return command
    packages = packages_to_keep(torch, _planned(installer, command))
    version = packages.get("torch")
    others = {name: one for name, one in packages.items() if name != "torch"}
    lenient = any_build and (version or torch.public).partition("+")[0] == torch.public
    if version and not lenient and not torch.is_same(version, others):
        raise RefusalError(refusal(torch, packages, _image()))
    if others and not (lenient and installer.words == ("uv", "sync")):
        raise RefusalError(refusal(torch, others, _image()))
    if version:
        relabel(site, version, _constraints())
    return [*command, *(word for name in others for word in ("--no-install-package", name))]


def _planned(installer: Installer, command: Sequence[str]) -> dict[str, str]:
    """Return what the command would install. If its dry run fails, end as that does."""
    environment = {**os.environ, "NO_COLOR": "1"}
    process = subprocess.run(dry_run(installer, command), env=environment, capture_output=True, text=True, check=False)
    if process.returncode:
        sys.stderr.write(process.stdout + process.stderr)
        print(
            f"keep-torch: `{' '.join(dry_run(installer, command))}` failed, and nothing was installed.", file=sys.stderr
        )
        raise SystemExit(process.returncode)
    return to_install(installer, process.stdout + process.stderr)


def _constraints() -> set[Path]:
    """Return the image's files of constraints."""
    names = (os.environ.get(name) for name in ("PIP_CONSTRAINT", "UV_CONSTRAINT", "UV_EXCLUDE"))
    return {Path(name) for name in names if name and Path(name).is_file()}


def _image() -> str:
    return os.environ.get("TORCHBAKE_ID", "its matrix does not say which")
