"""The plan of a build as a bake file: one target an image. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchbake.build.base_image import Base
from torchbake.core.paths import TOOLKIT
from torchbake.lock.lockfile import Lock
from torchbake.matrix.spec import Spec


@dataclass(frozen=True, kw_only=True)
class Job:
    """One image to build and what BuildKit is handed for it. ``ref`` is what `docker run` takes.

    ``dockerfile`` is its text. ``lock`` is None for init images. ``below`` names the stage below the image, if it is
    not the Dockerfile's default. ``own_template`` is True if a template of the project changes the Dockerfile.
    """

    spec: Spec
    ref: str
    tags: tuple[str, ...]
    inputs: str
    base: Base
    contexts: Mapping[str, str]
    dockerfile: str
    lock: Lock | None
    own_template: bool = False
    below: str = ""

    @property
    def has_wheels_apart(self) -> bool:
        """Return whether the image can be built without its wheels. A step of another template may need torch."""
        return self.lock is not None and not self.own_template

    @property
    def references(self) -> tuple[str, ...]:
        """All its tags, each with the repository."""
        return tuple(f"{self.spec.repository}:{tag}" for tag in self.tags)


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to build: what the command line and the builder's abilities decide, for all images alike.

    ``proxies`` are the names of variables that are set for us; their values, which may hold passwords, stay there.
    ``created`` is the time of the images, as RFC 3339. ``exports`` is a folder. Each image goes to a
    folder in it that has the name of its target.
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


# By the image's own Python: another one's bytecode is of no use.
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
_NO_PROVENANCE = ("type=provenance,disabled=true",)  # one of the time of day would make every build another image


def bake_file(
    jobs: Sequence[Job], options: Options, root: Path, secrets: Mapping[str, Mapping[str, Path]]
) -> dict[str, Any]:
    """The bake file of a plan. Target names are ids with dots replaced, as bake wants them."""
    targets: dict[str, Any] = {}
    for job in jobs:
        targets[target_name(job.spec)] = _target(job, options, root, secrets[job.spec.id])
    return _file(targets, [target_name(job.spec) for job in jobs], options)


def bytecode_file(
    job: Job, options: Options, root: Path, secrets: Mapping[str, Path], *, sources: Path, final: str, folder: Path
) -> dict[str, Any]:
    """The bake file of the bytecode of Python files in ``sources``, as it will stand below ``final``, in a folder.

    ``root`` is the project's; the only target is named as the image's own, with ``-bytecode`` behind it. ``sources`` is
    in a folder that is named by what it is of: BuildKit is sent only files of another size or time when the next folder
    of that role comes from a context with the same last name, and all in it may have one time.
    Source: https://github.com/moby/buildkit/issues/4817, https://github.com/docker/buildx/issues/3093
    """
    own = {
        "context": str(sources.parent),
        "contexts": {"sources": str(sources), "layers": str(TOOLKIT / "layers")},
        "dockerfile-inline": _BYTECODE.format(python=job.spec.base.python_command, root=final),
    }
    return _by_interpreter(job, options, root, secrets, word="bytecode", own=own, folder=folder)


def python_file(job: Job, options: Options, root: Path, secrets: Mapping[str, Path], *, folder: Path) -> dict[str, Any]:
    """The bake file of what an image's Python says of itself and of its settings, in a folder as the file ``python``.

    Builds of Python that may compile otherwise say otherwise: https://docs.python.org/3/library/sys.html#sys.version
    """
    own = {"context": str(folder), "dockerfile-inline": _PYTHON.format(python=job.spec.base.python_command)}
    return _by_interpreter(job, options, root, secrets, word="python", own=own, folder=folder)


def _by_interpreter(
    job: Job, options: Options, root: Path, secrets: Mapping[str, Path], *, word: str, own: Mapping[str, Any],
    folder: Path,
) -> dict[str, Any]:  # fmt: skip
    """A bake file with one target, named by a word, that stands on an image's Python and is written into a folder."""
    name = target_name(job.spec)
    interpreter = _inner(_target(job, options, root, secrets)) | {"target": "interpreter"}
    target = {
        **own,
        "contexts": {"interpreter": f"target:{name}-interpreter", **own.get("contexts", {})},
        "args": {},
        "output": [f"type=local,dest={folder}"],
        "attest": list(_NO_PROVENANCE),
        **({"no-cache": True} if options.no_cache else {}),
    }
    return _file({f"{name}-{word}": target, f"{name}-interpreter": interpreter}, [f"{name}-{word}"], options)


def _file(targets: dict[str, Any], default: list[str], options: Options) -> dict[str, Any]:
    targets = {name: _literal(target) for name, target in targets.items()}
    for target in targets.values():
        target["args"] |= {name: f"${{{name}}}" for name in options.proxies}
    file = {"group": {"default": {"targets": default}}, "target": targets}
    # bake fills in a variable from the environment, and refuses a file whose variables are none.
    variables = {name: {"default": ""} for name in options.proxies}
    return {"variable": variables, **file} if variables else file


def _base_arguments(base: Base) -> dict[str, str]:
    """A name is where a registry has the digest; a base of Debian packages is in none."""
    return {"BASE_NAME": base.image if base.source == "registry" else "", "BASE_SOURCE": base.source}


def _literal(value: Any) -> Any:
    """A value in which bake sees no template."""
    if isinstance(value, str):
        return value.replace("${", "$${").replace("%{", "%%{")
    if isinstance(value, list):
        return [_literal(item) for item in value]
    return {key: _literal(item) for key, item in value.items()} if isinstance(value, dict) else value


def _of_image(caches: Sequence[str], spec: Spec) -> list[str]:
    """A cache of its own for each image, where they are named so: one written by several holds the last alone."""
    return [cache.replace("{id}", spec.id) for cache in caches]


def target_name(spec: Spec) -> str:
    return spec.id.replace(".", "_")


def _inner(target: dict[str, Any]) -> dict[str, Any]:
    """A target of the same Dockerfile that others build upon, and that is no image."""
    return {key: value for key, value in target.items() if key != "cache-to"} | {"output": _CACHE_ONLY}


def exported() -> str:
    """Return the output of a builder that exports layouts. torchbake compresses the layers as it writes them again."""
    return "type=oci,tar=false,oci-mediatypes=true,compression=uncompressed"


def into_engine() -> str:
    """Return the output of a builder that exports no layouts: an image of its engine."""
    return "type=image"


def _target(job: Job, options: Options, root: Path, secrets: Mapping[str, Path]) -> dict[str, Any]:
    place = f",dest={options.exports / target_name(job.spec)}" if options.exports else ""
    target: dict[str, Any] = {
        "context": str(root),
        "dockerfile": f"images/{job.spec.id}/Dockerfile",
        "contexts": dict(job.contexts),
        "args": {
            "BASE_DIGEST": job.base.digest,
            **({} if job.spec.from_scratch else _base_arguments(job.base)),
            **({"BELOW": job.below} if job.below else {}),
            "CREATED": options.created,
            "INPUTS": job.inputs,
            "REVISION": options.revision,
        },
        "secret": [f"id={name},src={path}" for name, path in sorted(secrets.items())],
        # No tags: an image is named when it is whole, and then by all its tags at once.
        "output": [options.output + place],
        "attest": list(_NO_PROVENANCE),
    }
    if options.cache_to:
        target["cache-to"] = _of_image(options.cache_to, job.spec)
    if options.cache_from:
        target["cache-from"] = _of_image(options.cache_from, job.spec)
    pull = options.pull and job.base.context_in_engine not in job.contexts.values()  # no registry has that
    return target | ({"no-cache": True} if options.no_cache else {}) | ({"pull": True} if pull else {})
