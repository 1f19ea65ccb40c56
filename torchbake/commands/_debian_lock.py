"""`lock --debian`: the locks of the Debian packages of the selected images' bases."""

from collections.abc import Sequence

from torchbake.build.backend import backend_of
from torchbake.build.base_image import BaseImage, find_base, make_base
from torchbake.build.base_script import output_on_base
from torchbake.core.files import write_text
from torchbake.debian.lockfile import changes_of, debian_lock_path, find_debian_lock, format_debian_lock
from torchbake.debian.solve import SCRIPT, lock_of, requests_of
from torchbake.debian.steps import AptStep, apt_steps
from torchbake.engine.client import connect
from torchbake.errors import LockError
from torchbake.hostconfig.apt_archives import archive_of
from torchbake.hostconfig.apt_config import read_apt_config
from torchbake.matrix.project import Project
from torchbake.matrix.spec import BaseSpec, Spec, bases_of
from torchbake.ui import console
from torchbake.ui.command import Command
from torchbake.ui.steps import step


def lock_debian(project: Project, specs: Sequence[Spec]) -> None:
    """Lock the Debian packages of each base of these images, for all images of the matrix on it."""
    backend = backend_of(project, connect(), "auto", None, {})
    apt = read_apt_config()
    for spec in bases_of(specs):
        base = _base(project, spec, backend.executor == "buildx")
        steps = _steps(project, spec)
        with step(f"{spec.name}: resolving its Debian packages"):
            output = output_on_base(
                backend, spec, base, apt=apt, script=SCRIPT, words="\n".join(requests_of(steps)) + "\n"
            )
        archives = [archive_of(spec.distribution, apt), archive_of(spec.distribution)]
        lock = lock_of(spec, steps, output, archives)
        previous, path = find_debian_lock(project.root, spec), debian_lock_path(project.root, spec)
        changes = changes_of(previous, lock)
        write_text(path, format_debian_lock(spec, lock))
        for line in changes if previous else ():
            console.say(f"{spec.name}: {line}")
        summary = f"{len(lock.packages)} packages"
        console.say(f"{spec.name}: " + (f"locked {summary}" if changes else f"unchanged ({summary})"))


def check_debian(project: Project, specs: Sequence[Spec]) -> None:
    """Check that each base has a lock with the packages of all its images. Raises LockError."""
    for spec in bases_of(specs):
        lock = find_debian_lock(project.root, spec)
        if lock is None:
            raise LockError(
                f"{spec.name}: has no lock of Debian packages.", hint=f"Run: {Command('lock', 'all --debian')}"
            )
        lock.of(_steps(project, spec))
        console.say(f"{spec.name}: {len(lock.packages)} packages")


def _base(project: Project, spec: BaseSpec, buildkit: bool) -> BaseImage:
    known = find_base(spec, project.state, hashed=True)
    return known or make_base(spec, project.state, read_apt_config(), source="auto", say=console.say, buildkit=buildkit)


def _steps(project: Project, base: BaseSpec) -> list[AptStep]:
    """Return the steps of all images of the matrix on a base, each once."""
    images = (spec for spec in project.expansion.specs if spec.base.name == base.name)
    steps = {step.key: step for spec in images for step in apt_steps(spec).values()}
    return [steps[key] for key in sorted(steps)]
