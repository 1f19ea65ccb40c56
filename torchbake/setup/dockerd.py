"""Start and stop the engine: by systemd if that runs here, else dockerd by hand."""

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from torchbake.core.files import write_text
from torchbake.core.ownership import swappable
from torchbake.errors import SetupError
from torchbake.setup import leftovers
from torchbake.setup.paths import ENGINE_DIR, EnginePaths
from torchbake.ui import console
from torchbake.ui.command import Command

START_SECONDS = 60
STOP_SECONDS = 30  # the engine itself gives its containers 15
LOCK_SECONDS = 1200  # another setup may be downloading packages
UNITS = ("docker.service", "docker.socket", "containerd.service")
MARKER = ".torchbake"
# A user's PATH often lacks the folders of dockerd, iptables and modprobe.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

SocketState = Literal["answers", "forbidden", "hangs", "dead"]


def knock(path: Path) -> SocketState:
    """Check if an engine answers at a socket."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(5)
        try:
            line.connect(str(path))
            line.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return "answers" if b" 200 " in line.recv(64) else "hangs"
        except PermissionError:
            return "forbidden"
        except TimeoutError:
            return "hangs"
        except OSError:  # no such file, or nothing listens any more
            return "dead"


@contextlib.contextmanager
def only_one(paths: EnginePaths) -> Iterator[None]:
    """Hold the lock of setup and teardown, and wait for it first. Raises SetupError after 20 minutes.

    Raises SetupError also if another user could replace a folder of the engine: root writes there, and sends signals
    to processes and removes files that the folder names.
    """
    import fcntl  # noqa: PLC0415 - Windows has none, and setup must still print its advice there

    lock = paths.state / "setup.lock"
    places = (paths.data_root, lock, paths.log, paths.socket) if paths.own_folder and not os.geteuid() else ()
    if place := next(filter(None, map(swappable, places)), None):
        raise SetupError(
            f"{place} is not safe for an engine: a user other than root could replace it.",
            hint=f"Set {ENGINE_DIR} to a folder that root makes, below folders of root.",
        )
    paths.state.mkdir(parents=True, exist_ok=True)
    deadline, reported = time.monotonic() + LOCK_SECONDS, False
    with lock.open("w") as file:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if not reported:
                console.say("another setup or teardown runs here; waiting for it")
            reported = True
            if time.monotonic() > deadline:
                raise SetupError("Another setup has been running for 20 minutes.", hint=f"See: fuser -v {lock}")
            time.sleep(0.2)
        yield


def start(paths: EnginePaths, config: str, *, extra: Sequence[str] = ()) -> int:
    """Start dockerd by hand, wait until it answers, and return its pid.

    Raises SetupError with the end of its log if dockerd does not answer; then only the log is left.
    """
    command = _command(paths, extra)
    _refuse_a_second(paths)
    leftovers.clear(paths)  # of an engine that died
    _claim(paths.data_root)
    for folder in (paths.state, paths.log.parent, paths.socket.parent):
        folder.mkdir(parents=True, exist_ok=True)
    write_text(paths.config, config)
    log_start = paths.log.stat().st_size if paths.log.exists() else 0
    # Go collects garbage less often: an engine that unpacks has more memory than time.
    environment = {"GOGC": "400", **os.environ, "PATH": f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"}
    with paths.log.open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd="/",
            start_new_session=True,  # so neither Ctrl-C nor a closed terminal reaches dockerd
        )  # fmt: skip
    try:
        _wait_for_answer(process, paths, log_start)
    except BaseException:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        leftovers.clear(paths)
        raise
    return process.pid


def _command(paths: EnginePaths, extra: Sequence[str]) -> list[str]:
    dockerd = shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")
    if dockerd is None:
        raise SetupError("dockerd is not installed.", hint="Install Docker Engine 23.0 or later (docker.io).")
    options = [f"--config-file={paths.config}", f"--data-root={paths.data_root}", f"--exec-root={paths.exec_root}"]
    return [dockerd, *options, f"--pidfile={paths.pidfile}", f"--host={paths.endpoint}", *extra]


def _refuse_a_second(paths: EnginePaths) -> None:
    pid = leftovers.daemon(paths)
    if pid is not None:
        raise SetupError(
            f"The engine that setup started (pid {pid}) does not answer at {paths.socket}.",
            hint=f"See {paths.log}; then: {Command('teardown')}, and {Command('setup')}.",
        )
    if knock(paths.socket) != "dead":
        raise SetupError(f"Another engine listens at {paths.socket}.", hint="Use that engine, or stop it.")


def _claim(folder: Path) -> None:
    """Make the data folder and write its marker: `purge` removes only a folder with a marker."""
    if folder.exists() and not folder.is_dir():
        raise SetupError(f"{folder} is a file; the engine's data needs a folder there.", hint="Move it away.")
    folder.mkdir(parents=True, exist_ok=True)
    content = {entry.name for entry in folder.iterdir()}
    if content and not content & {MARKER, "engine-id"}:
        raise SetupError(f"{folder} is not empty and holds no engine's data.", hint="Move it away.")
    if MARKER not in content:
        (folder / MARKER).write_text("The images of torchbake's own engine; `teardown --purge` removes them.\n")


def _wait_for_answer(process: "subprocess.Popen[bytes]", paths: EnginePaths, log_start: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None:
        if knock(paths.socket) == "answers":
            return
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    code = process.returncode
    end = f"did not answer in {START_SECONDS} s" if code is None else f"ended with exit code {code}"
    with paths.log.open("rb") as log:
        log.seek(log_start)
        tail = log.read().decode(errors="replace").splitlines()[-15:]
    raise SetupError(
        f"dockerd {end}. The end of {paths.log}:\n" + "\n".join(f"    {line}" for line in tail),
        hint="See its last error. Inside a container, an engine needs --privileged.",
    )


def idle_units() -> tuple[str, ...]:
    """Return the engine's systemd units that do not run: setup may start them, and teardown stop them."""
    return tuple(unit for unit in UNITS if _systemctl("is-active", "--quiet", unit).returncode)


def start_units(paths: EnginePaths, idle: Sequence[str]) -> None:
    """Start the engine by systemd. ``idle`` are the units that did not run before setup. Raises SetupError."""
    write_text(paths.units, "\n".join(idle))
    process = _systemctl("start", "docker.service")
    deadline = time.monotonic() + START_SECONDS
    while process.returncode == 0 and knock(paths.socket) != "answers" and time.monotonic() < deadline:
        time.sleep(0.1)
    if process.returncode or knock(paths.socket) != "answers":
        reason = process.stderr.strip() or f"it does not answer at {paths.socket}"
        raise SetupError(f"systemd did not start the engine: {reason}", hint="See: journalctl -u docker -n 30")


def _systemctl(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["systemctl", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120
    )


def stop(paths: EnginePaths) -> bool:
    """Stop an engine that setup started, and clear its leftovers; False if there are none. Raises SetupError."""
    if not leftovers.any_left(paths):
        return False
    by_hand = paths.exec_root.exists()
    if paths.units.exists():
        process = _systemctl("stop", *paths.units.read_text().split())
        if process.returncode:
            hint = "See: systemctl status docker"
            raise SetupError(f"systemd did not stop the engine: {process.stderr.strip()}", hint=hint)
    _terminate(paths)
    leftovers.clear(paths)
    if by_hand and knock(paths.socket) == "dead":
        paths.socket.unlink(missing_ok=True)
    return True


def _terminate(paths: EnginePaths) -> None:
    """Ask our dockerd to end, and wait for it."""
    pid = leftovers.daemon(paths)
    if pid is None:
        return
    handle = os.pidfd_open(pid)
    try:
        if leftovers.is_our_daemon(pid, paths):  # checked with the handle: the pid may be another process's before
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            if not select.select([handle], [], [], STOP_SECONDS)[0]:
                raise SetupError(
                    f"The engine (pid {pid}) did not end within {STOP_SECONDS} s.",
                    hint=f"See {paths.log}; running containers may hold it. Run teardown again.",
                )
    finally:
        os.close(handle)


def purge(paths: EnginePaths) -> bool:
    """Remove a stopped engine's images; False if there are none. Raises SetupError if setup did not make the folder."""
    folder = paths.data_root
    if not os.path.lexists(folder):
        return False
    if folder.is_symlink() or not (folder / MARKER).is_file():
        raise SetupError(f"{folder} was not made by setup, and is not removed.", hint="Remove it by hand.")
    users = leftovers.users_of(folder)
    if users:
        raise SetupError(f"Another engine (pid {users[0]}) uses {folder}.", hint="Stop that engine first.")
    inside = [point for point, *_ in leftovers.all_mounts() if Path(point).is_relative_to(folder.resolve())]
    if inside:
        raise SetupError(f"{inside[0]} is still mounted; nothing was removed.", hint=f"umount {inside[0]}")
    shutil.rmtree(folder)
    return True
