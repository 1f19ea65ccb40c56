"""Run buildah and podman, which share their code for builds and most options, and read the images that they save.

Source: buildah-build(1), buildah-push(1), podman-build(1), podman-save(1)
"""

import contextlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

from torchbake.core.json_text import read_object
from torchbake.core.plain_text import last_line
from torchbake.engine.capability import number
from torchbake.engine.docker_cli import run
from torchbake.errors import BuildError, EngineError
from torchbake.oci.manifest import Manifest
from torchbake.oci.tar_member import open_member
from torchbake.store.layout import Layout
from torchbake.ui.tool_environment import environment_of

Program: TypeAlias = Literal["buildah", "podman"]
_OLDEST: Mapping[Program, tuple[int, ...]] = {"buildah": (1, 28), "podman": (4, 3)}  # the oldest that were tested
# The first versions whose build cache compares the files that a RUN mounts, not only its text.
# Source: https://github.com/containers/buildah/pull/5691
_HASHES_MOUNTS: Mapping[Program, tuple[int, ...]] = {"buildah": (1, 38), "podman": (5, 3)}
_NO_NAMESPACE = (
    "Allow user namespaces: apt-get install uidmap, a line for this user in /etc/subuid and /etc/subgid, and a kernel "
    "and a container that permit them; or run as root."
)


@dataclass(frozen=True, kw_only=True)
class Buildah:
    """One of the programs. ``address`` is of podman's engine; without it the program uses this user's storage."""

    program: Program
    address: str = ""
    engine_version: str = ""

    @property
    def command(self) -> tuple[str, ...]:
        return (self.program, "--url", self.address) if self.address else (self.program,)

    @cached_property
    def version(self) -> str:
        """The version of the program, or of the engine if it builds. Raises EngineError."""
        if self.engine_version:
            return self.engine_version
        code, output, errors = run([self.program, "--version"], self.environment)
        version = output.partition(" version ")[2].strip()
        if code or not version:
            raise EngineError(
                f"{self.program} --version fails: {last_line(errors or output)}",
                hint=f"Repair {shutil.which(self.program)}; as root: apt-get install --reinstall {self.program}",
            )
        return version

    @property
    def environment(self) -> dict[str, str]:
        return environment_of("buildah")

    @property
    def cached(self) -> bool:
        """True if the build cache can be used: it must compare the files that a RUN mounts."""
        return number(self.version) >= _HASHES_MOUNTS[self.program]

    def check(self) -> None:
        """Check that the program is installed and can build as this user. Raises EngineError."""
        if not shutil.which(self.program):
            another = ", or give --executor buildah" if self.address and shutil.which("buildah") else ""
            raise EngineError(
                f"{self.program} is not installed, but it builds the images.",
                hint=f"As root: apt-get install {self.program} uidmap{another}",
            )
        if number(self.version) < _OLDEST[self.program]:
            oldest = ".".join(map(str, _OLDEST[self.program]))
            raise EngineError(f"{self.program} {self.version.split()[0]} is too old; builds need {oldest} or later.")
        if os.geteuid() and not self.address:
            code, _, errors = run([self.program, "unshare", "true"], self.environment)
            if code:
                raise EngineError(
                    f"{self.program} gets no user namespace, so this user cannot build: {last_line(errors)}",
                    hint=_NO_NAMESPACE,
                )

    def build(
        self, context: Path, dockerfile: Path, *, target: str, arguments: Mapping[str, str | None],
        secrets: Iterable[str], cached: bool,
    ) -> list[str]:  # fmt: skip
        """Return the command of a build, which prints the ID of the image in its last line.

        An argument without a value gets the value of this process's environment. RUN has the network of the host, which
        needs no other packages.
        """
        words = [*self.command, "build", "--format=oci", "--layers=true", "--force-rm", "--pull=false"]
        words += ["--network=host", *([] if cached else ["--no-cache"])]
        for name, value in arguments.items():
            words += ["--build-arg", name if value is None else f"{name}={value}"]
        words += [f"--secret={secret}" for secret in secrets]
        return [*words, f"--target={target}", f"--file={dockerfile}", str(context)]

    def save(self, image: str, folder: Path) -> None:
        """Write an image as an OCI layout with uncompressed layers. Raises BuildError and OSError."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        if self.program == "buildah":
            self._run("push", "--quiet", "--disable-compression", image, f"oci:{folder}")
        else:
            self._run("save", "--quiet", "--uncompressed", "--format=oci-dir", f"--output={folder}", image)

    def bring(self, layout: Layout, digest: str) -> str:
        """Pull an image of a layout into this user's storage, and return its ID. Raises BuildError.

        It is pulled from an archive: the path of a folder would become the image's name, and may not be a valid one.
        """
        with tempfile.NamedTemporaryFile(prefix="torchbake-", suffix=".tar") as file:
            file.writelines(layout.archive(digest))
            file.flush()
            return last_line(self._run("pull", "--quiet", f"oci-archive:{file.name}"))

    def remove(self, images: Iterable[str]) -> None:
        """Remove images and the images of their steps, except images in use."""
        for image in images:
            with contextlib.suppress(BuildError):
                self._run("rmi", image)

    def _run(self, *words: str) -> str:
        process = subprocess.run(
            (*self.command, *words), env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", check=False,
        )  # fmt: skip
        if process.returncode:
            raise BuildError(f"{self.program} {words[0]} failed: {last_line(process.stderr)}")
        return process.stdout


def manifest_in(layout: Layout) -> Manifest:
    """Return the manifest of the only image of a layout. Raises BuildError."""
    try:
        (entry,) = read_object((layout.folder / "index.json").read_bytes())["manifests"]
        manifest = layout.find(entry["digest"])
    except (OSError, ValueError, LookupError, TypeError):
        manifest = None
    if manifest is None:
        raise BuildError("The program that built the image did not save all of it.", hint="Build it again.")
    return manifest


def put_files(layout: Layout, folder: Path) -> None:
    """Write the files of an image into a folder, lowest layer first. Raises BuildError and OSError."""
    for blob in manifest_in(layout).layers:
        with tarfile.open(layout.path(blob.digest)) as archive:
            for info in archive:
                path = folder / info.name
                if not path.resolve().is_relative_to(folder.resolve()) or not (info.isreg() or info.isdir()):
                    raise BuildError(f"The build wrote {info.name}, which is not a file or a folder below its root.")
                if info.isdir():
                    path.mkdir(parents=True, exist_ok=True)
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(open_member(archive, info).read())
                path.chmod(info.mode & 0o7777)
