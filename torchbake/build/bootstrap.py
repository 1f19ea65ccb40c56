"""Bootstrap bases by mmdebstrap from packages of Debian or Ubuntu: reproducible for each state of the mirror."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from torchbake.build.base_look import SCRIPT, Look, parse_look
from torchbake.build.commit import content_epoch, rfc3339
from torchbake.core.cause import cause_of
from torchbake.core.files import link_or_copy
from torchbake.core.machine import host_platform
from torchbake.core.paths import TOOLKIT
from torchbake.engine.capability import bootstrap_problem
from torchbake.engine.emulation import no_emulation, runs
from torchbake.errors import BaseError
from torchbake.hostconfig.apt_archives import UBUNTU_KEYS, archive_of
from torchbake.hostconfig.apt_config import AptConfig, apt_conf
from torchbake.matrix.spec import BaseSpec
from torchbake.store.layout import Layout
from torchbake.store.rootfs_image import write_rootfs_image
from torchbake.ui.command import Command
from torchbake.ui.steps import step
from torchbake.ui.tool_environment import environment_of

_LEGACY_KEYS = "/etc/apt/trusted.gpg"  # keys that --keyring would replace
_VARIABLES = {"debian": "TORCHBAKE_APT_MIRROR", "ubuntu": "TORCHBAKE_APT_MIRROR_UBUNTU"}
# Files that Debian's "slim" images leave out, about 100 MB.
_SLIM = tuple(f"/usr/share/{folder}/*" for folder in ("doc", "man", "info", "locale", "lintian"))
_KEEP = ("/usr/share/doc/*/copyright", "/usr/share/locale/locale.alias")


def bootstrap(
    spec: BaseSpec, layout: Path, apt: AptConfig, say: Callable[[str], None], packages: Path | None = None
) -> tuple[str, Look]:
    """Write the layout of a base, and return its digest and the result of its inspection. Raises BaseError.

    With a folder of ``packages``, they alone make the base, and no mirror is asked.
    """
    if spec.brings_python:
        raise BaseError(
            f"{spec.id}: cannot be bootstrapped: {spec.interpreter} is in no package, it comes with {spec.image}.",
            hint="Make its registry reachable; or leave out `interpreter`, for the suite's own Python.",
        )
    if not shutil.which("mmdebstrap"):
        raise BaseError(
            f"{spec.id}: cannot be bootstrapped: mmdebstrap is not installed.",
            hint="apt-get install mmdebstrap; or make a registry with the image reachable.",
        )
    if not runs(spec.platform):
        problem = no_emulation(spec.platform)
        raise BaseError(f"{spec.id}: cannot be bootstrapped: {problem.reason}", hint=problem.remedy)
    if for_user := bootstrap_problem():
        raise BaseError(f"{spec.id}: {for_user.reason}", hint=for_user.remedy)
    with tempfile.TemporaryDirectory(prefix="torchbake-base-") as name:
        folder = Path(name)
        rootfs = folder / "rootfs.tar"
        with step(f"{spec.id}: bootstrapping {spec.suite} by mmdebstrap"):
            archives = archive_of(spec.distribution, apt).one_line(spec.suite)
            if packages:
                archives = [f"deb [trusted=yes] copy:{_archive(spec, packages, folder / 'archive')} ./"]
            _run(spec, _command(spec, rootfs, folder, apt), archives)
        created_by = f"mmdebstrap --variant=minbase {spec.suite}"
        created = rfc3339(content_epoch())
        with step(f"{spec.id}: packing the base"):
            digest = write_rootfs_image(
                rootfs, Layout(folder=layout), created=created, created_by=created_by, architecture=spec.architecture
            )
        look = parse_look((folder / "looked").read_text(errors="replace"))
    say(f"{spec.id}: bootstrapped from {spec.suite}: {digest}")
    return digest, look


def _command(spec: BaseSpec, rootfs: Path, folder: Path, apt: AptConfig) -> list[str]:
    configuration, look = folder / "apt.conf", folder / "look"
    configuration.touch(mode=0o600)  # a proxy's address may hold a password
    configuration.write_text(apt_conf(apt, ca=None))
    look.write_text(SCRIPT)
    sources = folder / f"{spec.distribution}.sources"
    sources.write_text(archive_of(spec.distribution).sources(spec.suite))
    place = f"/etc/apt/sources.list.d/{sources.name}"
    command = [
        "mmdebstrap",
        "--variant=minbase",
        # By itself it would take fakechroot for a user, where the kernel gives no namespace.
        *(["--mode=unshare"] if os.geteuid() else []),
        *_architecture(spec),
        f"--aptopt={configuration}",
        *_keyring(spec, folder),
    ]
    # Ubuntu's minbase lacks it, and the package itself does not say that Debian requires it.
    command += ["--include=apt"]
    command += [f"--dpkgopt=path-exclude={path}" for path in _SLIM]
    command += [f"--dpkgopt=path-include={path}" for path in _KEEP]
    command += [f"--customize-hook=upload {look} /look"]
    command += [f'--customize-hook=chroot "$1" sh /look {spec.interpreter or "-"} - > "$1"/looked']
    command += [f"--customize-hook=download /looked {folder}/looked", '--customize-hook=rm "$1"/look "$1"/looked']
    # The image names the public mirrors, whatever mirror served the build.
    command += ['--customize-hook=rm -f "$1"/etc/apt/sources.list "$1"/etc/apt/apt.conf.d/99mmdebstrap']
    command += [f"--customize-hook=upload {sources} {place}", f'--customize-hook=chown 0:0 "$1"{place}']
    command += [f'--customize-hook=chmod 0644 "$1"{place}']  # neither the umask nor the owner of this host's file
    command += ['--customize-hook=rm -rf "$1"/var/log/* "$1"/var/cache/ldconfig/aux-cache "$1"/etc/hostname']
    return [*command, '--customize-hook=rm -f "$1"/etc/resolv.conf', spec.suite, str(rootfs), "-"]


def _architecture(spec: BaseSpec) -> list[str]:
    """Return the options for a base of another platform than this machine's.

    mmdebstrap would ask another program, arch-test, whether the kernel runs it.
    """
    return [] if spec.platform == host_platform() else [f"--architectures={spec.architecture}", "--skip=check/qemu"]


def _archive(spec: BaseSpec, packages: Path, folder: Path) -> Path:
    """Make an archive of package files for apt: the files, an index of them, and the suite that mmdebstrap looks for.

    Source: https://wiki.debian.org/DebianRepository/Format#Flat_Repository_Format
    """
    folder.mkdir()
    for path in packages.glob("*.deb"):
        link_or_copy(path, folder / path.name)
    words = ["sh", str(TOOLKIT / "layers/apt-install"), "--index", str(folder)]
    process = subprocess.run(words, env=environment_of("apt"), capture_output=True, check=False)
    if process.returncode:
        lines = process.stderr.decode(errors="replace").splitlines()
        raise BaseError(
            f"{spec.name}: no index of its locked packages: {cause_of(lines)}",
            hint=f"Lock them again: {Command('lock', 'all --debian')}",
        )
    index = process.stdout  # bytes: old packages name their maintainers in other encodings
    (folder / "Packages").write_bytes(index)
    sha256 = hashlib.sha256(index).hexdigest()
    (folder / "Release").write_text(
        f"Suite: {spec.suite}\nCodename: {spec.suite}\nSHA256:\n {sha256} {len(index)} Packages\n"
    )
    for each in (folder.parent, folder):
        each.chmod(0o755)  # apt reads it as another user
    return folder


def _run(spec: BaseSpec, command: list[str], archives: Iterable[str]) -> None:
    # Without it the files' times would depend on the day.
    environment = dict(environment_of("mmdebstrap"), SOURCE_DATE_EPOCH=str(content_epoch()))
    # On stdin, because URLs may contain passwords and every user can read the arguments of a process.
    process = subprocess.run(
        command, env=environment, input="\n".join(archives) + "\n", stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
    )  # fmt: skip
    if process.returncode:
        lines = process.stdout.strip().splitlines()
        tail = "\n  ".join(lines[-12:])
        mirror = f"{spec.distribution.capitalize()} mirror ({_VARIABLES[spec.distribution]} names another)"
        raise BaseError(
            f"{spec.id}: mmdebstrap {spec.suite} failed: {cause_of(lines) or process.returncode}\n  {tail}",
            hint=f"Check the {mirror}, the disk, and that you are root.",
        )


def _keyring(spec: BaseSpec, folder: Path) -> list[str]:
    """Return the option for the distribution's keys, which a host of another distribution lacks."""
    keys = Path(archive_of(spec.distribution).keys)
    if spec.distribution == "debian":
        return [f"--keyring={keys}"] if keys.exists() and not Path(_LEGACY_KEYS).exists() else []
    if not keys.exists():
        # apt reads the keys as the user _apt, who may not enter every home.
        keys = shutil.copyfile(_unpacked_keys(spec, folder / "keys"), folder / "keys.gpg")
        keys.chmod(0o644)
        folder.chmod(0o711)
    return [f"--keyring={keys}"]


def _unpacked_keys(spec: BaseSpec, folder: Path) -> Path:
    """Unpack Ubuntu's keys from Debian's signed package into ``folder``, without installing it.

    The package is fetched for each base, because a kept copy would be trusted without a signature.
    """
    keys = folder / UBUNTU_KEYS.lstrip("/")
    folder.mkdir()
    with tempfile.TemporaryDirectory(dir=folder) as name:
        command = ["apt-get", "download", "-q", "ubuntu-keyring"]
        try:
            process = subprocess.run(
                command, cwd=name, env=environment_of("apt"), capture_output=True, text=True, errors="replace",
                check=False,
            )  # fmt: skip
            failure = cause_of(process.stderr.splitlines()) if process.returncode else ""
            for archive in Path(name).glob("*.deb"):
                words = ["dpkg", "-x", str(archive), str(folder)]
                subprocess.run(words, env=environment_of("apt"), check=True, capture_output=True)
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            failure = str(error)
    if not keys.exists():
        raise BaseError(
            f"{spec.id}: cannot be bootstrapped: no keys of Ubuntu's archive: {failure or 'no package'}",
            hint=f"Install ubuntu-keyring, which has {UBUNTU_KEYS}, or make a registry with the image reachable.",
        )
    return keys
