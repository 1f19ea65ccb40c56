"""The plan of a build as a bake file: one target an image. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from torchbake.build.base_image import Base
from torchbake.matrix.spec import Spec


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """What stands in a build for its stage `nvidia`: a folder with the stage's names, most of them of empty files.

    ``rest`` is a folder with the lock of those wheels that the build installs all the same; None where there are none.
    """

    folder: Path
    rest: Path | None


@dataclass(frozen=True, kw_only=True)
class Job:
    """One image to build and what BuildKit is handed for it. ``ref`` is what `docker run` takes."""

    spec: Spec
    ref: str
    tags: tuple[str, ...]
    inputs: str
    base: Base
    contexts: Mapping[str, str]
    stand_in: StandIn | None = None

    @property
    def references(self) -> tuple[str, ...]:
        """All its tags, each with the repository."""
        return tuple(f"{self.spec.repository}:{tag}" for tag in self.tags)


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to build: what the command line and the builder's abilities decide, for all images alike.

    ``proxies`` are the names of variables that are set for us; their values, which may hold passwords, stay there.
    ``created`` is RFC 3339, for the labels; ``epoch`` is the time of the image and its history, in seconds (None: as
    ``created`` says). With ``exports``, a folder, each image goes to a folder of its own in it, named as its target.
    """

    output: str
    created: str
    revision: str
    proxies: Sequence[str] = ()
    epoch: int | None = None
    exports: Path | None = None
    no_cache: bool = False
    pull: bool = False
    cache_to: tuple[str, ...] = ()
    cache_from: tuple[str, ...] = ()


# The stage as it is without a stand-in: some layers by name alone, the rest by their files.
_WHOLE_STAGE = """\
FROM scratch
COPY . /
COPY --from=rest /layers /layers
COPY --from=rest /headers /headers
"""


def bake_file(
    jobs: Sequence[Job], options: Options, root: Path, secrets: Mapping[str, Mapping[str, Path]]
) -> dict[str, Any]:
    """The bake file of a plan. Target names are ids with dots replaced, as bake wants them."""
    targets: dict[str, Any] = {}
    for job in jobs:
        own = _target(job, options, root, secrets[job.spec.id])
        targets |= {name: _literal(target) for name, target in _with_stand_in(job, own).items()}
    for target in targets.values():
        target["args"] |= {name: f"${{{name}}}" for name in options.proxies}
    file = {"group": {"default": {"targets": [target_name(job.spec) for job in jobs]}}, "target": targets}
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


def _with_stand_in(job: Job, target: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The targets of an image: its own, and those that make what stands for its stage `nvidia`."""
    name, stand_in = target_name(job.spec), job.stand_in
    if stand_in is None:
        return {name: target}
    if stand_in.rest is None:
        return {name: target | {"contexts": {**target["contexts"], "nvidia": str(stand_in.folder)}}}
    inner = {key: value for key, value in target.items() if key != "cache-to"} | {"output": ["type=cacheonly"]}
    rest = inner | {"target": "nvidia", "contexts": {**target["contexts"], "locks": str(stand_in.rest)}}
    whole: dict[str, Any] = {
        "context": str(stand_in.folder),
        "contexts": {"rest": f"target:{name}-rest"},
        "dockerfile-inline": _WHOLE_STAGE,
        "args": {},
        "output": ["type=cacheonly"],
    }
    return {
        name: target | {"contexts": {**target["contexts"], "nvidia": f"target:{name}-nvidia"}},
        f"{name}-nvidia": whole,
        f"{name}-rest": rest,
    }


def exported() -> str:
    """How the finished image gets into an image layout for a moment, before an engine gets it."""
    return "type=oci,tar=false,oci-mediatypes=true,compression=zstd"


def output_to_layout(compression: str) -> str:
    """How the finished image gets into an image layout, every time in it set back to at most the epoch."""
    return (
        f"type=oci,tar=false,oci-mediatypes=true,compression={compression},force-compression=true,"
        "rewrite-timestamp=true"
    )


def output_for(driver: str) -> str:
    """How the finished image gets into an engine that takes images apart."""
    return "type=image" if driver == "docker" else "type=docker"


def _target(job: Job, options: Options, root: Path, secrets: Mapping[str, Path]) -> dict[str, Any]:
    epoch = int(datetime.fromisoformat(options.created).timestamp()) if options.epoch is None else options.epoch
    place = f",dest={options.exports / target_name(job.spec)}" if options.exports else ""
    target: dict[str, Any] = {
        "context": str(root),
        "dockerfile": f"images/{job.spec.id}/Dockerfile",
        "contexts": dict(job.contexts),
        "args": {
            "BASE_DIGEST": job.base.digest,
            **({} if job.spec.from_scratch else _base_arguments(job.base)),
            "CREATED": options.created,
            "INPUTS": job.inputs,
            "REVISION": options.revision,
            # BuildKit's own name for it: the times of the image and its history.
            "SOURCE_DATE_EPOCH": str(epoch),
        },
        "secret": [f"id={name},src={path}" for name, path in sorted(secrets.items())],
        # No tags: an image is named when it is whole, and then by all its tags at once.
        "output": [options.output + place],
        # An attestation of the time of day would make every build another image.
        "attest": ["type=provenance,disabled=true"],
    }
    if options.cache_to:
        target["cache-to"] = _of_image(options.cache_to, job.spec)
    if options.cache_from:
        target["cache-from"] = _of_image(options.cache_from, job.spec)
    return target | ({"no-cache": True} if options.no_cache else {}) | ({"pull": True} if options.pull else {})
