"""Run entrypoints/init/volume-permissions.c on real files. This needs root, a C compiler and mount."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.waiting import until

pytestmark = pytest.mark.entrypoints

SOURCE = Path(__file__).parents[2] / "entrypoints/init/volume-permissions.c"
WARNINGS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-static"]
SUMMARY = re.compile(
    r"^volume-permissions: (\S+): (\d+) entries, (\d+) changed, (\d+) failed, (\d+) skipped in \d+\.\d s$",
    re.MULTILINE,
)
OWNER = (1001, 1001)
SYSTEM_PATHS = [
    *("/", "//", "/./", "/etc", "//etc", "/etc/", "/etc/ssl", "/usr/../etc", "/usr/share", "/var/lib/.."),
    *("/dev/shm", "/home", "/lib", "/opt", "/root", "/run", "/srv", "/sys", "/var"),
    *("/proc/self", "/proc/self/root/etc"),
]
WRONG_OWNERS = ["", "app", "1:", ":1", "-1", "+1", " 1", "1:2:3", "4294967295", "18446744073709551617"]
WRONG_USAGE = ["--owner", "--mode", "--mode=0777", "--jobs=2", "--dry-run=yes", "--all", "-x"]
WORDS = ["--", "-", "owner", "=", "1001", ":", "a/", "..", "//", "\x1b", "é" * 300, "x" * 5000, "--mode="]
Mount = Callable[..., None]
_MOUNT_AND_RUN = """
outside=$1 volume=$2
shift 2
mount --bind "$outside/file" "$volume/files/mounted" && mount --bind "$outside" "$volume/folders/mounted" || exit 9
for uid in $(seq 2000 2299); do "$@" --mode g=u --owner "$uid" "$volume" || exit; done
"""
# Run a program once for each of so many owners, and print its exit codes.
_FOR_EACH_OWNER = """
count=$1 program=$2
shift 2
for uid in $(seq 2000 $((1999 + count))); do "$program" --owner "$uid" "$@"; echo "$?"; done
"""
# Install a seccomp filter that answers openat2 with an error, then run a command.
_WITHOUT_OPENAT2 = """
import ctypes, os, struct, sys
load, equal, give, errno_of, allow = 0x20, 0x15, 0x06, 0x50000, 0x7fff0000
lines = (load, 0, 0, 0), (equal, 0, 1, 437), (give, 0, 0, errno_of | int(sys.argv[1])), (give, 0, 0, allow)
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
program = ctypes.create_string_buffer(struct.pack("H6xQ", len(lines), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
    sys.exit(f"no seccomp filter: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[2], sys.argv[2:])
"""
# Exchange two names (RENAME_EXCHANGE) until the process is killed.
_EXCHANGE = """
import ctypes, os, sys
one, other = map(os.fsencode, sys.argv[1:])
libc = ctypes.CDLL(None, use_errno=True)
while libc.renameat2(-100, one, -100, other, 2) == 0:
    pass
sys.exit(os.strerror(ctypes.get_errno()))
"""


class Outcome(NamedTuple):
    """How one run ended; the counts are -1 where no summary was printed."""

    code: int
    stdout: str
    stderr: str
    entries: int
    changed: int
    failed: int
    skipped: int


def run_command(command: Sequence[str | Path], *, cwd: Path | None = None, uid: int | None = None) -> Outcome:
    process = subprocess.run(
        command,
        cwd=cwd,
        user=uid,
        group=uid,
        extra_groups=None if uid is None else [],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    match = SUMMARY.search(process.stderr)
    counts = [int(number) for number in match.groups()[1:]] if match else [-1] * 4
    return Outcome(process.returncode, process.stdout, process.stderr, *counts)


class Tool:
    """The program. Its wrapper runs once for many runs of it, as processes inherit what the wrapper sets."""

    def __init__(self, binary: Path, *wrapper: str) -> None:
        self.binary, self.wrapper = binary, wrapper

    def __call__(self, *arguments: str | Path, cwd: Path | None = None, uid: int | None = None) -> Outcome:
        return run_command([*self.wrapper, self.binary, *arguments], cwd=cwd, uid=uid)

    def repeat(self, count: int, *arguments: str | Path) -> Outcome:
        """Run it once for each of ``count`` owners. The output is the exit codes, a line each."""
        return run_command([*self.wrapper, "sh", "-c", _FOR_EACH_OWNER, "sh", str(count), self.binary, *arguments])

    def under(self, *wrapper: str | Path, arguments: Sequence[str | Path]) -> Outcome:
        return run_command([*self.wrapper, *wrapper, self.binary, *arguments])


@pytest.fixture(scope="session", autouse=True)
def _root() -> None:
    if os.geteuid() != 0:
        pytest.skip("not run: files are given to other users, which only root may do")


@pytest.fixture(scope="session")
def tool(_root: None, tmp_path_factory: pytest.TempPathFactory) -> Tool:
    compiler = shutil.which("musl-gcc") or shutil.which("gcc")
    if compiler is None:
        pytest.fail("no C compiler; install musl-tools (or gcc)")
    binary = tmp_path_factory.mktemp("bin") / "volume-permissions"
    process = subprocess.run([compiler, *WARNINGS, "-o", binary, SOURCE], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return Tool(binary)


@pytest.fixture(params=[0, errno.ENOSYS, errno.EPERM], ids=["openat2", "ENOSYS", "EPERM"])
def any_kernel(tool: Tool, request: pytest.FixtureRequest) -> Tool:
    """Kernels with openat2, kernels without it, and old seccomp profiles, which refuse it."""
    if not request.param:
        return tool
    return Tool(tool.binary, sys.executable, "-S", "-c", _WITHOUT_OPENAT2, str(request.param))


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user can reach, which tmp_path is not; rm copes with very deep trees."""
    place = Path(tempfile.mkdtemp(prefix="volume-permissions-")).resolve()
    place.chmod(0o755)
    yield place
    subprocess.run(["rm", "-rf", "--one-file-system", place], check=True)


@pytest.fixture
def volume(place: Path) -> Path:
    volume = place / "volume"
    volume.mkdir()
    return volume


@pytest.fixture
def mount(place: Path) -> Iterator[Mount]:
    """Mounts things below `place` until the test ends."""
    targets: list[Path] = []

    def mount(*arguments: str | Path, on: Path) -> None:
        subprocess.run(["mount", *arguments, on], check=True)
        targets.append(on)

    yield mount
    for target in reversed(targets):
        subprocess.run(["umount", target], check=True)


@pytest.fixture
def immutable(place: Path) -> Iterator[Callable[[Path], None]]:
    """Makes a file immutable until the test ends, for which the filesystem must know `chattr +i`."""
    files: list[Path] = []

    def immutable(file: Path) -> None:
        process = subprocess.run(["chattr", "+i", file], capture_output=True, text=True, check=False)
        if process.returncode != 0:
            pytest.fail(f"{place} does not know chattr +i; set TMPDIR to a directory on ext4: {process.stderr}")
        files.append(file)

    yield immutable
    for file in files:
        subprocess.run(["chattr", "-i", file], check=True)


def owner(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_uid, status.st_gid


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def strangers(volume: Path) -> list[str]:
    """Return the paths in `volume` that do not have the default owner."""
    command: list[str | Path] = ["find", volume, "!", "(", "-uid", "1001", "-gid", "1001", ")", "-print"]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    return process.stdout.splitlines()


def snapshot(volume: Path) -> dict[Path, tuple[int, int, int, int]]:
    paths = [volume, *volume.rglob("*")]
    return {p: (s.st_uid, s.st_gid, s.st_mode, s.st_ctime_ns) for p in paths for s in [p.lstat()]}


def fill(volume: Path) -> int:
    """A little of everything; the number of entries, with the volume itself."""
    for name in ("a/b/c", "a/d", "empty"):
        (volume / name).mkdir(parents=True)
    for name in ("one", "a/two", "a/b/three", "a/b/c/four", "a/d/five"):
        (volume / name).write_text(name)
    (volume / "a" / "dangling").symlink_to("nowhere")
    os.mkfifo(volume / "a" / "fifo")
    os.mknod(volume / "a" / "null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(volume / "a" / "socket"))
    return 1 + 5 + 5 + 4


# Changes of owner and mode


def test_everything_gets_the_owner(any_kernel: Tool, volume: Path) -> None:
    entries = fill(volume)
    finished = any_kernel(volume)
    assert (finished.code, finished.entries, finished.changed, finished.failed, finished.skipped) == (
        0,
        entries,
        entries,
        0,
        0,
    )
    assert strangers(volume) == []


def test_a_second_run_writes_nothing(tool: Tool, volume: Path) -> None:
    entries = fill(volume)
    tool("--mode", "g=u", volume)
    before = snapshot(volume)
    finished = tool("--mode", "g=u", volume)
    assert (finished.code, finished.entries, finished.changed) == (0, entries, 0)
    assert snapshot(volume) == before


def test_only_what_differs_is_written(tool: Tool, volume: Path) -> None:
    fill(volume)
    tool(volume)
    before = snapshot(volume)
    odd = volume / "a" / "two"
    os.chown(odd, 1001, 0)
    assert tool(volume).changed == 1
    after = snapshot(volume)
    assert {path for path in after if after[path] != before[path]} == {odd}


@pytest.mark.parametrize(("argument", "expected"), [("7:8", (7, 8)), ("7", (7, 0)), ("0:4294967294", (0, 2**32 - 2))])
def test_the_owner_is_chosen(tool: Tool, volume: Path, argument: str, expected: tuple[int, int]) -> None:
    (volume / "file").touch()
    assert tool("--owner", argument, volume).code == 0
    assert owner(volume) == owner(volume / "file") == expected


def test_a_symlink_changes_and_its_target_does_not(any_kernel: Tool, place: Path, volume: Path) -> None:
    outside = place / "outside"
    (outside / "sub").mkdir(parents=True)
    (outside / "file").touch()
    before = snapshot(outside)
    for name, target in (("to-dir", outside), ("to-file", outside / "file")):
        (volume / name).symlink_to(target)
    finished = any_kernel("--mode", "g=u", volume)
    assert (finished.code, finished.entries) == (0, 3)
    assert owner(volume / "to-dir") == owner(volume / "to-file") == OWNER
    assert snapshot(outside) == before


def test_group_bits_become_user_bits(tool: Tool, place: Path, volume: Path) -> None:
    secret, script, folder = volume / "secret", volume / "script", volume / "folder"
    folder.mkdir(mode=0o700)
    for file, bits in ((secret, 0o600), (script, 0o4715), (place / "outside", 0o600)):
        file.touch()
        file.chmod(bits)
    os.mkfifo(volume / "fifo", 0o600)
    (volume / "link").symlink_to(place / "outside")
    finished = tool("--mode", "g=u", volume)
    assert finished.code == 0
    assert [mode(path) for path in (volume, folder, secret)] == [0o775, 0o770, 0o660]
    assert mode(script) == 0o775  # the new owner must not inherit setuid
    assert [mode(path) for path in (volume / "fifo", place / "outside")] == [0o600, 0o600]


def test_the_mode_stays_when_not_asked_for(tool: Tool, volume: Path) -> None:
    (volume / "file").touch(mode=0o600)
    tool(volume)
    assert mode(volume / "file") == 0o600


def test_a_dry_run_counts_and_changes_nothing(tool: Tool, volume: Path) -> None:
    entries = fill(volume)
    before = snapshot(volume)
    finished = tool("--dry-run", "--mode", "g=u", volume)
    assert (finished.code, finished.changed) == (0, entries)
    assert snapshot(volume) == before


def test_each_path_has_its_summary(tool: Tool, volume: Path) -> None:
    for name in ("one", "two"):
        (volume / name).mkdir()
    finished = tool(volume / "one", volume / "two")
    assert [value[0] for value in SUMMARY.findall(finished.stderr)] == [str(volume / "one"), str(volume / "two")]
    assert owner(volume) == (0, 0)


# Skipped files and directories


@pytest.mark.parametrize("name", ["lost+found", ".snapshot"])
def test_reserved_directories_stay(tool: Tool, volume: Path, name: str) -> None:
    for parent in (volume, volume / "deeper"):
        (parent / name / "sub").mkdir(parents=True)
    (volume / "file").mkdir()
    (volume / "file" / name).touch()
    finished = tool(volume)
    assert (finished.code, finished.skipped) == (0, 2)
    assert owner(volume / "deeper") == OWNER
    assert owner(volume / "file" / name) == OWNER  # only directories are reserved
    for parent in (volume, volume / "deeper"):
        assert owner(parent / name) == owner(parent / name / "sub") == (0, 0)


def test_another_filesystem_stays(any_kernel: Tool, volume: Path, mount: Mount) -> None:
    inside = volume / "a" / "tmpfs"
    inside.mkdir(parents=True)
    mount("-t", "tmpfs", "tmpfs", on=inside)
    (inside / "file").touch()
    before = snapshot(inside)
    finished = any_kernel(volume)
    assert (finished.code, finished.entries, finished.skipped) == (0, 3, 1)
    assert snapshot(inside) == before


def test_a_bind_mount_of_the_same_filesystem_stays(any_kernel: Tool, place: Path, volume: Path, mount: Mount) -> None:
    outside, file = place / "outside", place / "file"
    (outside / "sub").mkdir(parents=True)
    (volume / "bound").mkdir()
    for path in (file, volume / "bound-file"):
        path.touch()
    mount("--bind", outside, on=volume / "bound")
    mount("--bind", file, on=volume / "bound-file")
    before = snapshot(outside), snapshot(file)
    finished = any_kernel("--mode", "g=u", volume)
    assert (finished.code, finished.entries, finished.skipped) == (0, 3, 2)
    assert (snapshot(outside), snapshot(file)) == before


def test_the_volume_may_itself_be_a_mount(tool: Tool, volume: Path, mount: Mount) -> None:
    mount("-t", "tmpfs", "tmpfs", on=volume)
    entries = fill(volume)
    assert tool(volume).changed == entries
    assert strangers(volume) == []


def test_a_directory_swapped_for_a_symlink_leads_nowhere(any_kernel: Tool, place: Path, volume: Path) -> None:
    """Many files slow down the walk, so that some swaps happen between the listing of a directory and its open."""
    outside, inside, aside = place / "outside", volume / "a" / "b", volume / "aside"
    for directory in (outside, outside / "sub", inside.parent, inside, inside / "sub"):
        directory.mkdir(parents=True, exist_ok=True)
        for number in range(200):
            (directory / str(number)).touch(mode=0o600)
    before = snapshot(outside)
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            inside.rename(aside)
            inside.symlink_to(outside)
            inside.unlink()
            aside.rename(inside)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        finished = any_kernel.repeat(100, "--mode", "g=u", volume)
    finally:
        over.set()
        swapper.join()
    codes = finished.stdout.split()
    assert len(codes) == 100
    assert {*codes} <= {"0", "1"}
    assert snapshot(outside) == before


# Attacks by a user of the volume


@contextlib.contextmanager
def exchanging(one: Path, other: Path) -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-S", "-c", _EXCHANGE, one, other], stderr=subprocess.PIPE) as attacker:
        try:
            yield
            assert attacker.poll() is None, attacker.stderr and attacker.stderr.read()
        finally:
            attacker.kill()


@pytest.mark.parametrize("below", ["", "sub"])
def test_a_path_that_is_exchanged_leads_nowhere(any_kernel: Tool, place: Path, volume: Path, below: str) -> None:
    """A name of PATH is a directory, then a symlink to another directory, thousands of times per second."""
    outside, inside, link = place / "outside", volume / "name", volume / "link"
    for directory in (outside, inside):
        (directory / "sub").mkdir(parents=True)
        (directory / "sub" / "file").touch()
    link.symlink_to(outside)
    before = snapshot(outside)
    with exchanging(inside, link):
        codes = any_kernel.repeat(300, "--mode", "g=u", inside / below).stdout.split()
    assert snapshot(outside) == before
    assert len(codes) == 300
    assert {*codes} == {"0", "2"}, "the exchanges and the runs must meet in both ways"


def test_a_mount_that_is_exchanged_is_not_entered(any_kernel: Tool, place: Path, volume: Path) -> None:
    """A process of another mount namespace may rename a directory that is a mount point in the program's namespace."""
    outside = place / "outside"
    names = [volume / kind / name for kind in ("files", "folders") for name in ("own", "mounted")]
    for path in (outside / "file", *names[:2]):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    for path in names[2:]:
        (path / "sub").mkdir(parents=True)
    before = snapshot(outside)
    with exchanging(*names[:2]), exchanging(*names[2:]):
        paths = [outside, volume, any_kernel.binary]
        words = ["unshare", "--mount", "--propagation=private", "sh", "-c", _MOUNT_AND_RUN, "sh"]
        finished = run_command([*any_kernel.wrapper, *words, *paths])
    assert snapshot(outside) == before
    skipped = [int(value[4]) for value in SUMMARY.findall(finished.stderr)]
    assert (finished.code, len(skipped)) == (0, 300), finished.stderr
    assert sum(skipped) > 300, "the mounts are not there"


# Refused arguments; with --dry-run, so that a mistake here harms no machine


@pytest.mark.parametrize("path", SYSTEM_PATHS)
def test_system_paths_are_refused(tool: Tool, path: str) -> None:
    finished = tool("--dry-run", path)
    assert (finished.code, finished.entries) == (2, -1)
    assert finished.stderr.startswith(f"volume-permissions: {path}: ")


@pytest.mark.parametrize(("cwd", "path"), [("/", "etc"), ("/", "."), ("/etc", "."), ("/usr/share", "../../etc")])
def test_relative_system_paths_are_refused(tool: Tool, cwd: str, path: str) -> None:
    assert tool("--dry-run", path, cwd=Path(cwd)).code == 2


def test_a_symlink_is_refused(tool: Tool, place: Path, volume: Path) -> None:
    for name, target in (("to-etc", Path("/etc")), ("to-volume", volume)):
        (place / name).symlink_to(target)
        for path in (f"{place}/{name}", f"{place}/{name}/"):
            finished = tool("--dry-run", path)
            assert finished.code == 2
            assert "is a symbolic link" in finished.stderr
    (place / "to-root").symlink_to("/")
    assert tool("--dry-run", place / "to-root" / "etc").code == 2


@pytest.mark.parametrize("below", ["", "/", "/.", "/sub", "//sub", "/missing"])
def test_no_part_of_a_path_may_be_a_symlink(any_kernel: Tool, place: Path, volume: Path, below: str) -> None:
    """It may have been put there by whoever can write to a volume, and lead to another one."""
    (volume / "sub").mkdir()
    (place / "link").symlink_to(volume)
    finished = any_kernel(f"{place}/link{below}")
    assert finished.code == 2
    assert f"{place}/link is a symbolic link" in finished.stderr
    assert owner(volume) == owner(volume / "sub") == (0, 0)


@pytest.mark.parametrize("name", ["library1", "libs", "lib.d", "usr1", "etcetera", "devices", "binaries"])
def test_the_name_of_a_system_path_may_begin_another(tool: Tool, place: Path, name: str) -> None:
    shutil.copy(tool.binary, place / "volume-permissions")
    (place / name).mkdir()
    finished = run_command(["chroot", place, "/volume-permissions", f"/{name}"])
    assert (finished.code, finished.stderr.count("\n")) == (0, 1)
    assert owner(place / name) == OWNER


@pytest.mark.parametrize("path", ["/lib", "//lib", "/lib/x", "/./lib", "/lib64", "/lib32", "/libx32/x", "/etc/./"])
def test_libraries_are_refused_in_any_spelling(tool: Tool, place: Path, path: str) -> None:
    shutil.copy(tool.binary, place / "volume-permissions")
    for name in ("lib/x", "lib32", "lib64", "libx32/x", "etc"):
        (place / name).mkdir(parents=True)
    finished = run_command(["chroot", place, "/volume-permissions", "--dry-run", path])
    assert (finished.code, "is a system path" in finished.stderr) == (2, True)


def test_a_relative_path_is_accepted(tool: Tool, place: Path, volume: Path) -> None:
    assert tool("./volume//.", cwd=place).code == 0
    assert owner(volume) == OWNER
    assert owner(place) == (0, 0)


@pytest.mark.parametrize("path", ["..", "sub/..", "sub/../sub", "../volume/sub"])
def test_a_path_may_not_go_up(tool: Tool, volume: Path, path: str) -> None:
    """If the directory before ".." is moved, ".." leads to another directory."""
    (volume / "sub").mkdir()
    for argument in (path, volume / path):
        finished = tool(str(argument), cwd=volume)
        assert (finished.code, "'..'" in finished.stderr) == (2, True)
    assert owner(volume) == owner(volume / "sub") == (0, 0)


def test_nothing_is_done_when_one_path_is_wrong(tool: Tool, place: Path, volume: Path) -> None:
    (place / "file").touch()
    for wrong in (place / "missing", place / "file"):
        assert tool(volume, wrong).code == 2
    assert owner(volume) == (0, 0)


@pytest.mark.parametrize("argument", [*(f"--owner={owner}" for owner in WRONG_OWNERS), *WRONG_USAGE])
def test_wrong_usage(tool: Tool, volume: Path, argument: str) -> None:
    finished = tool(volume, argument)
    assert finished.code == 2
    assert len(finished.stderr.splitlines()) == 1
    assert finished.stderr.startswith(f"volume-permissions: {argument.partition('=')[0]}")
    assert owner(volume) == (0, 0)


@pytest.mark.parametrize(("arguments", "name"), [(["-xy"], "-x"), (["--quiet", "-zq"], "-z"), (["-q=3"], "-q")])
def test_an_unknown_letter_is_named(tool: Tool, volume: Path, arguments: list[str], name: str) -> None:
    finished = tool(*arguments, volume)
    assert (finished.code, finished.stderr) == (2, f"volume-permissions: {name} is not a known option; see --help\n")


def test_help_and_version(tool: Tool) -> None:
    assert "--owner UID[:GID]" in tool("--help").stdout
    assert tool("--version").stdout.startswith("volume-permissions ")
    assert tool("--help").code == tool("--version").code == 0


# Failures


def test_a_failure_does_not_stop_the_rest(tool: Tool, volume: Path, immutable: Callable[[Path], None]) -> None:
    entries = fill(volume)
    stuck = volume / "a" / "two"
    immutable(stuck)
    finished = tool(volume)
    assert (finished.code, finished.changed, finished.failed) == (1, entries - 1, 1)
    assert f"volume-permissions: {stuck}: cannot change the owner: Operation not permitted\n" in finished.stderr
    assert strangers(volume) == [str(stuck)]


def test_a_read_only_volume_fails_with_a_count(tool: Tool, volume: Path, mount: Mount) -> None:
    mount("-t", "tmpfs", "tmpfs", on=volume)
    fill(volume)
    subprocess.run(["mount", "-o", "remount,ro", volume], check=True)
    finished = tool("--mode", "g=u", volume)
    assert (finished.code, finished.changed) == (1, 0)
    assert "Read-only file system" in finished.stderr


def test_only_the_first_ten_failures_are_printed(tool: Tool, place: Path, volume: Path) -> None:
    """Another user than root may change nothing here."""
    binary = shutil.copy(tool.binary, place)
    for number in range(15):
        (volume / f"file\n{number}").touch()
    finished = run_command([binary, "--quiet", volume], uid=65534)
    assert (finished.code, finished.entries) == (1, -1)
    *printed, count = finished.stderr.splitlines()
    assert len(printed) == 10
    assert all(line.endswith(": cannot change the owner: Operation not permitted") for line in printed)
    assert count.startswith(f"volume-permissions: {volume}: 16 failed, the first 10 are above; ")
    assert run_command([binary, volume], uid=65534).failed == 16


def test_names_are_shown_as_text(tool: Tool, place: Path, volume: Path) -> None:
    """Neither a file's name nor an argument can forge a line or speak to a terminal."""
    binary = shutil.copy(tool.binary, place)
    (volume / "a\nb\x1b[2J\\c\u202e").touch()
    finished = run_command([binary, volume], uid=65534)
    assert f"{volume}/a\\nb\\x1b[2J\\\\c\\xe2\\x80\\xae: cannot change the owner" in finished.stderr
    assert "\\x1b]0;x\\x07: cannot be found" in tool("/\x1b]0;x\x07").stderr


def test_a_long_path_makes_no_long_line(tool: Tool, place: Path, volume: Path) -> None:
    binary = shutil.copy(tool.binary, place)
    dig(volume, 2000)
    finished = run_command([binary, volume], uid=65534)
    assert (finished.code, finished.failed) == (1, 2001)
    assert max(map(len, finished.stderr.splitlines())) < 5000


def test_quiet_says_nothing_when_all_is_well(tool: Tool, volume: Path) -> None:
    finished = tool("--quiet", volume)
    assert (finished.code, finished.stdout, finished.stderr) == (0, "", "")


def test_what_vanishes_meanwhile_is_no_failure(any_kernel: Tool, volume: Path) -> None:
    over = threading.Event()

    def churn() -> None:
        while not over.is_set():
            for number in range(100):
                (volume / f"dir{number}").mkdir()
                (volume / f"file{number}").touch()
            for number in range(100):
                (volume / f"dir{number}").rmdir()
                (volume / f"file{number}").unlink()

    churner = threading.Thread(target=churn)
    churner.start()
    try:
        finished = any_kernel.repeat(50, "--mode", "g=u", volume)
    finally:
        over.set()
        churner.join()
    assert finished.stdout.split() == ["0"] * 50
    assert [int(failed) for _, _, _, failed, _ in SUMMARY.findall(finished.stderr)] == [0] * 50


# Where it runs


def test_three_capabilities_are_enough(tool: Tool, volume: Path) -> None:
    (volume / "private").mkdir()
    (volume / "private" / "file").touch(mode=0o600)
    for path in (volume / "private" / "file", volume / "private"):
        os.chown(path, 4242, 4242)
    (volume / "private").chmod(0o700)
    only = "-all,+chown,+fowner,+dac_override"
    finished = tool.under("setpriv", f"--bounding-set={only}", arguments=["--mode", "g=u", volume])
    assert (finished.code, finished.changed) == (0, 3)
    assert strangers(volume) == []
    assert [mode(volume / "private"), mode(volume / "private" / "file")] == [0o770, 0o660]


@pytest.mark.parametrize("group", [0, 1001, 2000])
@pytest.mark.parametrize("argument", ["1001:1001", "1001"])
def test_a_directory_keeps_its_setgid_bit(tool: Tool, volume: Path, group: int, argument: str) -> None:
    """Without the capability FSETID, the kernel drops it when chmod changes another group's directory."""
    folder = volume / "shared"
    folder.mkdir()
    os.chown(folder, 0, group)
    folder.chmod(0o2750)
    only = "-all,+chown,+fowner,+dac_override"
    finished = tool.under("setpriv", f"--bounding-set={only}", arguments=["--mode", "g=u", "--owner", argument, volume])
    assert (finished.code, finished.changed) == (0, 2)
    assert (mode(folder), owner(folder)) == (0o2770, (1001, 1001 if ":" in argument else group))


def test_data_is_the_default_in_an_image_without_anything_else(tool: Tool, place: Path, volume: Path) -> None:
    """As in a FROM scratch image: no libraries, no /proc, and /data or nothing."""
    shutil.copy(tool.binary, place / "volume-permissions")
    missing = run_command(["chroot", place, "/volume-permissions"])
    assert missing.code == 2
    assert "/data: cannot be found" in missing.stderr
    volume.rename(place / "data")
    finished = run_command(["chroot", place, "/volume-permissions"])
    assert (finished.code, finished.entries) == (0, 1)
    assert owner(place / "data") == OWNER
    assert owner(place) == (0, 0)


def full_pipe() -> tuple[int, int]:
    """A pipe that blocks whoever writes to it."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b" " * 4096)
    os.set_blocking(writer, True)
    return reader, writer


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_it_as_the_first_process(tool: Tool, volume: Path, number: signal.Signals, code: int) -> None:
    """It cannot end before the signal comes, because it blocks on the summary."""
    for file in range(500):
        (volume / str(file)).touch()
    reader, writer = full_pipe()
    with subprocess.Popen(["unshare", "--pid", "--fork", tool.binary, volume], stderr=writer) as unshare:
        try:
            until(lambda: owner(volume) == OWNER)
            children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text().split()
            os.kill(int(children[0]), number)
            assert unshare.wait(timeout=10) == code
        finally:
            os.close(reader)  # which unblocks it where the signal did not end it
            os.close(writer)
    assert tool(volume).code == 0
    assert strangers(volume) == []


# How large it may get


def test_a_wide_tree(tool: Tool, volume: Path, mount: Mount) -> None:
    """More names than are read at a time, half of them directories."""
    mount("-t", "tmpfs", "tmpfs", on=volume)  # only because it is filled fast
    for number in range(40_000):
        (volume / f"{'long' * 20}d{number}").mkdir()
        (volume / f"f{number}").touch()
    finished = tool(volume)
    assert (finished.code, finished.entries, finished.changed) == (0, 80_001, 80_001)
    assert strangers(volume) == []


def dig(volume: Path, levels: int, beside: Sequence[str] = ()) -> None:
    """Make nested directories, each with the siblings ``beside``, which the tool reads after it."""
    here = os.open(volume, os.O_RDONLY)
    for _ in range(levels):
        for name in ("directory", *beside):
            os.mkdir(name, dir_fd=here)
        above, here = here, os.open("directory", os.O_RDONLY, dir_fd=here)
        os.close(above)
    os.close(here)


def test_a_deep_tree(any_kernel: Tool, volume: Path) -> None:
    dig(volume, 2000)
    finished = any_kernel(volume)
    assert (finished.code, finished.entries, finished.changed) == (0, 2001, 2001)
    assert strangers(volume) == []


def test_few_descriptors_are_enough(any_kernel: Tool, volume: Path, mount: Mount) -> None:
    """Deeper than there are descriptors, and wide on more levels than may wait half read."""
    mount("-t", "tmpfs", "tmpfs", on=volume)
    dig(volume, 100, beside=("x", "y"))
    (volume / "wide").mkdir()
    dig(volume / "wide", 20, beside=[str(number) for number in range(1100)])
    finished = any_kernel.under("prlimit", "--nofile=16:16", arguments=[volume])
    assert (finished.code, finished.entries) == (0, 1 + 3 * 100 + 1 + 1101 * 20)
    assert strangers(volume) == []


def test_time_grows_with_depth_and_not_with_its_square(tool: Tool, volume: Path, mount: Mount) -> None:
    """`run_command` waits a minute; walked from the top, each level costs more than the one before."""
    mount("-t", "tmpfs", "tmpfs", on=volume)
    dig(volume, 30_000, beside=["x"])
    finished = tool.under("prlimit", "--nofile=64:64", arguments=[volume])
    assert (finished.code, finished.entries, finished.changed) == (0, 60_001, 60_001)
    assert strangers(volume) == []


def test_what_is_moved_out_meanwhile_leads_nowhere(tool: Tool, place: Path, volume: Path) -> None:
    """Its ".." leads to a directory outside, whose "x" the tool must not take for the volume's "x"."""
    dig(volume, 40, beside=["x"])
    outside, moved = place / "outside", volume.joinpath(*["directory"] * 20)
    (outside / "x" / "y").mkdir(parents=True)
    over = threading.Event()

    def move() -> None:
        while not over.is_set():
            moved.rename(outside / "directory")
            (outside / "directory").rename(moved)

    mover = threading.Thread(target=move)
    mover.start()
    try:
        codes = {
            tool.under("prlimit", "--nofile=12:12", arguments=["--owner", str(uid), volume]).code
            for uid in range(2000, 2150)
        }
    finally:
        over.set()
        mover.join()
    assert codes <= {0, 1}
    assert {owner(path) for path in (outside, outside / "x", outside / "x" / "y")} == {(0, 0)}


# Static analysis and sanitizers


def test_the_compiler_s_analyzer_finds_nothing(tmp_path: Path) -> None:
    words = ["gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-fanalyzer"]
    finished = run_command([*words, "-c", "-o", tmp_path / "object", SOURCE])
    assert finished.code == 0, finished.stderr


def test_sanitizers_find_nothing(volume: Path, tmp_path: Path) -> None:
    """On a little of everything, with few descriptors, and on arguments by chance."""
    binary = tmp_path / "volume-permissions"
    command = ["gcc", "-std=c11", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run([*command, "-o", binary, SOURCE], check=True)
    fill(volume)
    dig(volume / "empty", 200, beside=("x", "y"))
    for number in range(2000):
        (volume / "a" / "d" / f"f{number}").touch()
    for uid, limit in ((7, "16"), (8, "20"), (9, "1024")):
        arguments = ["--mode", "g=u", "--owner", str(uid), str(volume)]
        finished = run_command(["prlimit", f"--nofile={limit}:{limit}", binary, *arguments])
        assert (finished.code, finished.entries, finished.changed) == (0, 2615, 2615), finished.stderr
    chance = random.Random(1)
    for _ in range(60):
        words = [chance.choice(WORDS) + chance.choice(WORDS) * chance.randrange(3) for _ in range(4)]
        assert run_command([binary, "--dry-run", *words], cwd=volume).code in (0, 2), words
