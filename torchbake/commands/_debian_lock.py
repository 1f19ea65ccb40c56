"""`lock --debian`: the locks of the Debian packages of the selected images' bases."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from torchbake.build.backend import Backend, backend_of
from torchbake.build.base_image import find_base, make_base, record_lock
from torchbake.build.base_script import output_on_base
from torchbake.core.files import write_text
from torchbake.debian.lockfile import (
    DebianLock,
    changes_of,
    debian_lock_path,
    find_debian_lock,
    format_debian_lock,
)
from torchbake.debian.solve import SCRIPT, lock_of, words_of
from torchbake.debian.steps import AptStep, apt_steps
from torchbake.engine.client import connect
from torchbake.errors import LockError
from torchbake.hostconfig.apt_archives import known_archives
from torchbake.hostconfig.apt_config import AptConfig, read_apt_config
from torchbake.matrix.base_lock import base_lock_path, read_base_lock
from torchbake.matrix.platforms import bases_of, words_of_base
from torchbake.matrix.project import Project
from torchbake.matrix.spec import BaseSpec, Spec
from torchbake.ui import console
from torchbake.ui.command import Command
from torchbake.ui.steps import step


def lock_debian(project: Project, specs: Sequence[Spec], *, upgrade: bool) -> None:
    """Lock the packages of each base of these images, for all images of the matrix on it.

    With ``upgrade`` the bases are made again, of the newest packages or by the newest digest.
    """
    resolver, pushed = debian_resolver(project), read_base_lock(project.root)
    for spec in bases_of(specs):
        old, path = _readable_lock(project, spec), debian_lock_path(project.root, spec)
        lock = resolver.resolve(spec, None if upgrade else old, upgrade=upgrade)
        write_text(path, format_debian_lock(spec, lock))
        record_lock(spec, project.state, lock)
        for line in changes_of(old, lock) if old else ():
            console.say(f"{spec.id}: {line}")
        if spec.id in pushed and pushed[spec.id].reference.digest != lock.digest:
            say = f"{spec.id}: its base in {base_lock_path(project.root)} is older; push it: "
            console.say(f"{say}{Command('base', f'{words_of_base(spec)} --push HOST/NAMESPACE')}", style="yellow")
        console.say(f"{spec.id}: {'unchanged' if lock == old else 'locked'} ({len(lock.packages)} packages)")


def _readable_lock(project: Project, spec: BaseSpec) -> DebianLock | None:
    """Return the lock of a base; None if it cannot be used, since it is made again."""
    try:
        return find_debian_lock(project.root, spec)
    except LockError as error:
        console.say(f"{error.message.rstrip('.')}: making it again", style="yellow")
        return None


def check_debian(project: Project, specs: Sequence[Spec]) -> None:
    """Check that each base has a lock with the packages of all its images. Raises LockError."""
    for spec in bases_of(specs):
        lock = find_debian_lock(project.root, spec)
        if lock is None:
            hint = f"Run: {Command('lock', 'all --debian')}"
            raise LockError(f"{spec.id}: has no lock of Debian packages.", hint=hint)
        lock.of(_steps(project, spec))
        console.say(f"{spec.id}: {len(lock.packages)} packages")


def debian_resolver(project: Project) -> "DebianResolver":
    """Return the resolver that uses this machine's engine. Raises EngineError."""
    backend = backend_of(project, connect(), "auto", None, {})
    return DebianResolver(project=project, backend=backend, apt=read_apt_config())


@dataclass(frozen=True, kw_only=True)
class DebianResolver:
    """Resolves the Debian packages of bases by apt, in containers of these bases."""

    project: Project
    backend: Backend
    apt: AptConfig

    def resolve(self, spec: BaseSpec, old: DebianLock | None, *, upgrade: bool) -> DebianLock:
        """Resolve the packages of the images on a base: the one of an ``old`` lock, or with ``upgrade`` a new one.

        Raises EngineError if containers of its platform do not run here.
        """
        self.backend.check_scripts(spec.platform)
        state = self.project.state
        earlier = None if upgrade else find_base(spec, state, old, hashed=True)
        if earlier and earlier.source == "bootstrap" and old is None:
            earlier = None  # a mirror may have dropped packages of a base of another day
        start = partial(self.backend.start, cached=False)
        base = earlier or make_base(spec, state, self.apt, source="auto", say=console.say, start=start, lock=old)
        bootstrapped, steps = base.source == "bootstrap", _steps(self.project, spec)
        words = words_of(steps, bootstrapped=bootstrapped and old is None)
        with step(f"{spec.id}: resolving its Debian packages"):
            context = self.backend.base_context(base)
            output = output_on_base(start(), spec, context, apt=self.apt, script=SCRIPT, words=words)
        lock = lock_of(spec, steps, output, known_archives(spec.distribution, self.apt))
        return replace(lock, digest=base.digest, base=old.base if old else lock.base)


def _steps(project: Project, base: BaseSpec) -> list[AptStep]:
    """Return the steps of all images of the matrix on a base, each once."""
    images = (spec for spec in project.expansion.specs if spec.base.id == base.id)
    steps = {step.key: step for spec in images for step in apt_steps(spec).values()}
    return [steps[key] for key in sorted(steps)]
