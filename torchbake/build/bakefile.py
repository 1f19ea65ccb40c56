"""Bake files: the targets of images for `docker buildx bake`. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from torchbake.build.bake_variables import bake_frame
from torchbake.build.base_image import BaseImage
from torchbake.core.paths import TOOLKIT
from torchbake.lock.lockfile import Lock
from torchbake.matrix.spec import ImageSpec, Spec
from torchbake.render.template_effect import NO_EFFECT, TemplateEffect


@dataclass(frozen=True, kw_only=True)
class BuildJob:
    """One image to build, with its base, named contexts and build arguments. ``ref`` is the name for `docker run`.

    ``tags`` are those in the engine.

    ``dockerfile`` is the Dockerfile's text, and ``effect`` is that of the project's template. ``lock`` is None for init
    images. ``native`` is the base of stages on the builder's own platform; None if there are none. An empty ``below``
    (the stage below the image) or ``target`` (the stage to build) means the default.
    """

    spec: Spec
    ref: str
    tags: tuple[str, ...]
    inputs: str
    base: BaseImage
    contexts: Mapping[str, str]
    dockerfile: str
    lock: Lock | None
    native: BaseImage | None = None
    effect: TemplateEffect = NO_EFFECT
    below: str = ""
    target: str = ""

    @property
    def references(self) -> tuple[str, ...]:
        """All its tags, each with the repository."""
        return tuple(f"{self.spec.repository}:{tag}" for tag in self.tags)


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """Options of a build, which are the same for all images.

    ``proxies`` are the names of set variables. Their values may contain passwords, so no file contains them.
    ``created`` is the time of the images, as RFC 3339. Each image is written to the subfolder of ``exports`` with the
    name of its target.
    """

    output: str
    created: str
    revision: str
    proxies: Sequence[str] = ()
    exports: Path | None = None
    no_cache: bool = False
    pull: bool = False
    cache_to: tuple[str, ...] = ()
    cache_from: tuple[str, ...] = ()


# Only the image's own Python can use its bytecode.
_BYTECODE = """\
FROM interpreter AS compiler
RUN --mount=type=bind,from=layers,source=/wheels,target=/run/layers/wheels \\
    --mount=type=bind,from=sources,target=/run/sources \\
    PYTHONPATH=/run/layers {python} -m wheels bytecode /run/sources /bytecode {root}

FROM scratch
COPY --from=compiler /bytecode /
"""
_PYTHON = """\
FROM interpreter AS asked
RUN {python} -c "import os, sys; print(sys.version, [each for each in sorted(os.environ.items()) \
    if 'PYTHON' in each[0]])" > /python

FROM scratch
COPY --from=asked /python /
"""
_CACHE_ONLY = ["type=cacheonly"]
_NO_PROVENANCE = ("type=provenance,disabled=true",)  # provenance with a time would make every build another image


def bake_file(
    jobs: Sequence[BuildJob], options: BuildOptions, root: Path, secrets: Mapping[str, Mapping[str, Path]]
) -> dict[str, Any]:
    """Return the bake file of jobs. bake allows no dots in the names of targets, so IDs have `_` for them."""
    targets = {target_name(job.spec): _target(job, options, root, secrets[job.spec.id]) for job in jobs}
    return bake_frame(targets, [*targets], options.proxies)


def bytecode_file(
    job: BuildJob,
    options: BuildOptions,
    root: Path,
    secrets: Mapping[str, Path],
    *,
    sources: Path,
    final: str,
    folder: Path,
) -> dict[str, Any]:
    """Return the bake file that compiles the Python files of ``sources`` for their place below ``final``.

    ``root`` is the project's folder. The target is named as the image's, with ``-bytecode`` at the end, and writes into
    ``folder``. All files may have one time, and buildx sends only files whose size or time differs from the last
    context of the same name. So the parent of ``sources`` needs a unique name.
    Source: https://github.com/moby/buildkit/issues/4817, https://github.com/docker/buildx/issues/3093
    """
    own = {
        "context": str(sources.parent),
        "contexts": {"sources": str(sources), "layers": str(TOOLKIT / "layers")},
        "dockerfile-inline": _BYTECODE.format(python=job.spec.base.python_command, root=final),
    }
    return _by_interpreter(job, options, root, secrets, word="bytecode", own=own, folder=folder)


def python_file(
    job: BuildJob, options: BuildOptions, root: Path, secrets: Mapping[str, Path], *, folder: Path
) -> dict[str, Any]:
    """Return the bake file that writes an image's version and settings of Python to ``folder/python``.

    They differ for builds of Python with other bytecode: https://docs.python.org/3/library/sys.html#sys.version
    """
    own = {"context": str(folder), "dockerfile-inline": _PYTHON.format(python=job.spec.base.python_command)}
    return _by_interpreter(job, options, root, secrets, word="python", own=own, folder=folder)


def _by_interpreter(
    job: BuildJob, options: BuildOptions, root: Path, secrets: Mapping[str, Path], *, word: str, own: dict[str, Any],
    folder: Path,
) -> dict[str, Any]:  # fmt: skip
    """Return a bake file with one target that is based on an image's Python and writes into a folder."""
    name = target_name(job.spec)
    interpreter = _inner(_target(job, options, root, secrets)) | {"target": cast(ImageSpec, job.spec).interpreter_stage}
    platforms = interpreter.pop("platforms")
    if job.native is None:  # else that of the machine that builds
        interpreter["platforms"] = own["platforms"] = platforms
    target = {
        **own,
        "contexts": {"interpreter": f"target:{name}-interpreter", **own.get("contexts", {})},
        "args": {},
        "output": [f"type=local,dest={folder}"],
        "attest": list(_NO_PROVENANCE),
        **({"no-cache": True} if options.no_cache else {}),
    }
    targets = {f"{name}-{word}": target, f"{name}-interpreter": interpreter}
    return bake_frame(targets, [f"{name}-{word}"], options.proxies)


def target_name(spec: Spec) -> str:
    return spec.id.replace(".", "_")


def _inner(target: dict[str, Any]) -> dict[str, Any]:
    """Return a target of the same Dockerfile on which others are based, and which exports no image."""
    return {key: value for key, value in target.items() if key != "cache-to"} | {"output": _CACHE_ONLY}


def export_spec() -> str:
    """Return the output of a builder that exports layouts. torchbake compresses the layers as it writes them again."""
    return "type=oci,tar=false,oci-mediatypes=true,compression=uncompressed"


def into_engine() -> str:
    """Return the output of a builder that exports no layouts: an image of its engine."""
    return "type=image"


def build_arguments(job: BuildJob, options: BuildOptions) -> dict[str, str]:
    """Return the build arguments of an image."""
    base = job.base
    # Only a base of a registry can be found by name and digest.
    names = {"BASE_NAME": base.image_name if base.source == "registry" else "", "BASE_SOURCE": base.source}
    return {
        "BASE_DIGEST": base.digest,
        **({} if job.spec.from_scratch else names),
        **({"BELOW": job.below} if job.below else {}),
        "CREATED": options.created,
        "INPUTS": job.inputs,
        "REVISION": options.revision,
    }


def _target(job: BuildJob, options: BuildOptions, root: Path, secrets: Mapping[str, Path]) -> dict[str, Any]:
    place = f",dest={options.exports / target_name(job.spec)}" if options.exports else ""
    target: dict[str, Any] = {
        "context": str(root),
        "dockerfile": f"images/{job.spec.id}/Dockerfile",
        "contexts": dict(job.contexts),
        "args": build_arguments(job, options),
        "platforms": [job.spec.platform],
        **({"target": job.target} if job.target else {}),
        "secret": [f"id={name},src={path}" for name, path in sorted(secrets.items())],
        # Without tags: an image gets all its tags at once, after its build.
        "output": [options.output + place],
        "attest": list(_NO_PROVENANCE),
    }
    for key, caches in (("cache-to", options.cache_to), ("cache-from", options.cache_from)):
        if caches:  # with {id} each image has a cache; of one that several images write, only the last remains
            target[key] = [cache.replace("{id}", job.spec.id) for cache in caches]
    pull = options.pull and job.base.context_in_engine not in job.contexts.values()  # which no registry has
    return target | ({"no-cache": True} if options.no_cache else {}) | ({"pull": True} if pull else {})
