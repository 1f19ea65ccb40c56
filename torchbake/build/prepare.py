"""Prepare the jobs of images: locks, Dockerfiles on disk, inputs digests and wheels."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self, cast

from torchbake.build.bakefile import BuildJob
from torchbake.build.base_image import BaseImage, find_base
from torchbake.build.inputs import inputs_digest
from torchbake.build.native import bases_for, native_contexts
from torchbake.build.own_wheels_check import check_own_wheels
from torchbake.build.plan import PreparedImage, ref_of, why_build
from torchbake.build.project_files import own_inputs
from torchbake.build.wheelhouse import BUILDER, stage_wheels
from torchbake.core.files import write_text
from torchbake.core.paths import TOOLKIT
from torchbake.debian.lockfile import find_debian_lock
from torchbake.debian.pool import DebianPool, pool_of
from torchbake.debian.steps import apt_steps
from torchbake.engine.image import EngineImage
from torchbake.errors import LockError, RenderError, TorchbakeError
from torchbake.hostconfig.apt_config import AptConfig, read_apt_config
from torchbake.hostconfig.index_logins import check_logins
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.builder_lock import builder_lock_path, builder_lock_text, read_builder_lock
from torchbake.lock.image_lock import find_lock, format_checked, lock_path, lock_text
from torchbake.lock.lockfile import Lock, Pin
from torchbake.lock.needs import wheels_by_stage
from torchbake.lock.newest import odd_versions
from torchbake.matrix.project import Project
from torchbake.matrix.spec import BaseSpec, ImageSpec, Spec
from torchbake.matrix.tags import engine_tags
from torchbake.projects.lock import lock_image
from torchbake.projects.outdated import read_or_explain
from torchbake.render.build_context import own_sources
from torchbake.render.dockerfile import dockerfile_path, render
from torchbake.render.rendered_files import stale, write
from torchbake.render.template_effect import NO_EFFECT, TemplateEffect, template_effect
from torchbake.ui.steps import step


@dataclass(frozen=True, kw_only=True)
class ImagePreparation:
    """Prepares the images of one run. With ``locked`` a missing or stale lock is an error.

    ``wheel_folder`` is a folder for the wheels of the builder stage; without it each build downloads them.
    """

    project: Project
    pip: PipConfig
    locked: bool
    dry_run: bool
    say: Callable[[str], None]
    wheel_folder: Path | None = None

    @classmethod
    def to_ask(cls, project: Project, say: Callable[[str], None]) -> Self:
        """Return a preparation that writes no files, to compare images with their inputs of today."""
        return cls(project=project, pip=PipConfig(), locked=True, dry_run=True, say=say)

    def images(self, specs: Sequence[Spec], bases: Mapping[str, BaseImage | TorchbakeError]) -> list[PreparedImage]:
        """Return each image with its job, or with the error that ends this image. ``bases`` are by id."""
        return [self._image(spec, [bases[base.id] for base in bases_for(spec)]) for spec in specs]

    def refused(self, specs: Sequence[Spec]) -> set[str]:
        """Return the ids of images that the project's templates cannot make, as far as their locks are there.

        Such an image needs no base, which may take minutes.
        """
        ids = set[str]()
        for spec in specs if self.project.templates else ():
            try:
                render(spec, find_lock(self.project.root, spec), self.project.templates)
            except RenderError:
                ids.add(spec.id)
            except TorchbakeError:
                continue  # its lock is made later
        return ids

    def job(self, spec: Spec, base: BaseImage, native: BaseImage | None = None) -> BuildJob:
        """Return the job of an image, and write its lock and Dockerfile. Raises LockError and RenderError.

        ``native`` is the base on this machine's platform, for a build whose stages are not all emulated.
        """
        lock = self._lock(spec)
        dockerfile = render(spec, lock, self.project.templates)
        path = dockerfile_path(self.project.root, spec)
        if not self.dry_run:
            write(stale(path, dockerfile))
        contexts: dict[str, str] = {}
        if not spec.base.digest:  # else the Dockerfile's FROM names the image itself
            contexts[spec.base.image] = base.context(self.project.state)
        if native:
            here = {base.name: base.context(self.project.state) for base in (base, native)}
            contexts |= {name: here[each.id] for name, each in native_contexts(spec).items()}
        if self.project.root != TOOLKIT:
            contexts["toolkit"] = str(TOOLKIT)
        return BuildJob(
            spec=spec,
            ref=ref_of(spec, self.project.tags[spec.id]),
            tags=engine_tags(spec, self.project.tags[spec.id]),
            inputs=self._inputs(spec, dockerfile, base),
            base=base,
            contexts=contexts,
            dockerfile=dockerfile,
            lock=lock,
            effect=self._effect(spec, lock, dockerfile),
            native=native,
        )

    def _effect(self, spec: Spec, lock: Lock | None, dockerfile: str) -> TemplateEffect:
        if self.project.templates is None or not isinstance(spec, ImageSpec):
            return NO_EFFECT
        return template_effect(dockerfile, render(spec, lock))

    def why_old(self, spec: Spec, image: EngineImage) -> str | None:
        """Return why an image would be built again; None if that is not known, as its base was never fetched here."""
        base = find_base(spec.base, self.project.state, find_debian_lock(self.project.root, spec.base))
        if base is None:
            return None
        try:
            return why_build(self.job(spec, base), image, force=False)
        except TorchbakeError as error:
            return error.message

    def inputs_changed(self, job: BuildJob) -> bool:
        """Return whether input files of an image have changed since its job was made."""
        try:
            dockerfile = render(job.spec, find_lock(self.project.root, job.spec), self.project.templates)
            return self._inputs(job.spec, dockerfile, job.base) != job.inputs
        except (TorchbakeError, OSError):
            return True

    def with_packages(self, job: BuildJob) -> BuildJob:
        """Return a job with contexts of its files on this host: locked Debian packages, and wheels.

        Raises BuildError if a locked Debian package cannot be fetched.
        """
        bases = {"debs": job.spec.base, **native_contexts(job.spec, "-debs")}
        folders = {name: self._packages(job.spec, base) for name, base in bases.items()}
        contexts = {name: str(folder) for name, folder in folders.items() if folder}
        return self._with_wheels(replace(job, contexts={**job.contexts, **contexts}) if contexts else job)

    def _packages(self, spec: Spec, base: BaseSpec) -> Path | None:
        """Return a folder with the locked Debian packages of an image's steps; None if the base has no lock."""
        lock = find_debian_lock(self.project.root, base)
        if lock is None:
            return None
        steps = apt_steps(spec)
        if base.platform != spec.platform:  # that base only has the Python, and its packages for a builder
            steps = {name: step for name, step in steps.items() if name in ("system", "builder")}
        return self._pool(base).context(lock.of(steps.values()), self.project.state)

    def _pool(self, base: BaseSpec) -> DebianPool:
        """Return the pool of a base, the same one for all images of a run."""
        if base not in self._pools:
            self._pools[base] = pool_of(base, self.pip, self._apt)
        return self._pools[base]

    @cached_property
    def _pools(self) -> dict[BaseSpec, DebianPool]:
        return {}

    @cached_property
    def _apt(self) -> AptConfig:
        return read_apt_config()

    def _with_wheels(self, job: BuildJob) -> BuildJob:
        """Return a job with a context of its wheels in folders of this host, and of the builder's wheels."""
        if job.lock is None or not isinstance(job.spec, ImageSpec):
            return job
        if job.spec.project:  # uv in the build would fail minutes later, in the middle of a log
            pins = (pin.name for pin in job.lock.layers["site"])
            check_logins(self.pip.by_project.get(job.spec.project.folder, ()), next(pins, "pip"), self.pip)
        stages = {BUILDER: self._builder_pins, **wheels_by_stage(job.spec, job.lock)}
        folders = (*self.pip.local_folders, *self._wheel_folders)
        # The context also replaces the wheels that the Dockerfile of a project copies for a build by hand.
        folder = stage_wheels(
            stages,
            folders,
            job.spec.base.python,
            self.project.state,
            always=job.spec.project is not None,
            platform=job.spec.platform,
        )
        return replace(job, contexts={**job.contexts, "wheels": str(folder)}) if folder else job

    def _image(self, spec: Spec, bases: Sequence[BaseImage | TorchbakeError]) -> PreparedImage:
        tags = self.project.tags[spec.id]
        if failure := next((base for base in bases if isinstance(base, TorchbakeError)), None):
            return PreparedImage(spec=spec, tags=tags, job=failure, base_failed=True)
        try:
            return PreparedImage(spec=spec, tags=tags, job=self.job(spec, *cast(Sequence[BaseImage], bases)))
        except TorchbakeError as error:
            return PreparedImage(spec=spec, tags=tags, job=error)

    def _lock(self, spec: Spec) -> Lock | None:
        if not isinstance(spec, ImageSpec):
            return None
        try:
            lock = read_or_explain(self.project.root, spec)
            check_own_wheels(self.project.root, spec, lock)
            return lock
        except LockError:
            if self.locked:
                raise
        path = lock_path(self.project.root, spec)
        self.say(f"{spec.id}: its lock, or a wheel of it, is missing or out of date; locking")
        previous = lock_text(self.project.root, spec)
        with step(f"{spec.id}: locking"):
            lock = lock_image(self.project.root, spec, self.pip, previous=previous)
        for odd in odd_versions(spec, lock, self.pip, previous):
            self.say(f"{spec.id}: {odd}")
        if not self.dry_run:
            write_text(path, format_checked(spec, lock))
        return lock

    def _inputs(self, spec: Spec, dockerfile: str, base: BaseImage) -> str:
        lock = find_debian_lock(self.project.root, spec.base)
        return inputs_digest(
            spec,
            dockerfile=dockerfile,
            lock_text=lock_text(self.project.root, spec),
            builder_lock=self._builder_lock if spec.has_torch else "",
            # Versions of mmdebstrap make other bytes of the same packages.
            base_digest=lock.base_digest if lock else base.digest,
            own=own_inputs(self.project.root, own_sources(dockerfile)),
            debian_packages=lock.lines(spec) if lock else (),
        )

    @cached_property
    def _builder_pins(self) -> tuple[Pin, ...]:
        return tuple(read_builder_lock(self.project.root).pins.values())

    @cached_property
    def _wheel_folders(self) -> tuple[Path, ...]:
        """The folder of the builder's wheels, which are fetched once a run, if it can be used."""
        if self.wheel_folder is None:
            return ()
        from torchbake.build.wheel_fetch import keep  # noqa: PLC0415 - only for a build

        return (self.wheel_folder,) if keep(self._builder_pins, self.pip, self.wheel_folder, self.say) else ()

    @cached_property
    def _builder_lock(self) -> str:
        """The text of the builder's lock; empty in a dry run of a new project, which has none."""
        if self.dry_run and not builder_lock_path(self.project.root).exists():
            return ""
        return builder_lock_text(self.project.root)
