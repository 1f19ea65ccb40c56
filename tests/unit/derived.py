"""Derive all files and values from the repository's matrix and locks; print the digest of each by name."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from torchbake.build.bakefile import BuildJob, BuildOptions, bake_file
from torchbake.build.base_image import BaseImage
from torchbake.build.inputs import inputs_digest
from torchbake.build.plan import ref_of
from torchbake.core.paths import TOOLKIT
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.hostconfig.build_secrets import secret_texts
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.builder_lock import builder_lock_text
from torchbake.lock.image_lock import find_lock, lock_text
from torchbake.lock.lockfile import format_lock
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.spec import Spec
from torchbake.oci.manifest import sha256
from torchbake.render.dockerfile import render

_PIP = PipConfig(index_url="https://a/simple", extra_index_urls=("https://b", "https://c"), trusted_hosts=("a", "b"))
_APT = AptConfig(
    mirror="http://a/debian",
    security_mirror="http://a/security",
    proxies=(("Acquire::http::Proxy", "http://p"),),
)
_OPTIONS = BuildOptions(
    output="type=image", created="2026-01-01T00:00:00+00:00", revision="c", proxies=("HTTP_PROXY", "p")
)


def derived() -> Iterator[tuple[str, str]]:
    """Locks, Dockerfiles, inputs digests, secrets and the bake file."""
    project, jobs = load_project(TOOLKIT / "matrix.yaml"), list[BuildJob]()
    for spec in one_of_each_kind(project):
        lock = find_lock(TOOLKIT, spec)
        dockerfile = render(spec, lock)
        jobs.append(_job(project, spec, dockerfile))
        yield f"dockerfile {spec.id}", sha256(dockerfile.encode())
        yield f"inputs {spec.id}", jobs[-1].inputs
        yield f"tags {spec.id}", " ".join(jobs[-1].tags)
        yield f"secrets {spec.id}", sha256(json.dumps(secret_texts(_PIP, _APT, spec)).encode())
        if lock:
            yield f"lock {spec.id}", sha256(format_lock(lock).encode())
    secrets = {job.spec.id: {name: Path("/s", name) for name in secret_texts(_PIP, _APT, job.spec)} for job in jobs}
    yield "bake file", sha256(json.dumps(bake_file(jobs, _OPTIONS, TOOLKIT, secrets), indent=2).encode())


def one_of_each_kind(project: Project) -> list[Spec]:
    """Return the first image of each kind of accelerator, base, flavor and platform."""
    kinds = {(spec.family, spec.base.name, spec.flavor, spec.platform): spec for spec in project.expansion.specs[::-1]}
    return [*kinds.values()]


def order() -> list[str]:
    """Return words in the order of a set, which depends on the process's hash seed."""
    return list({f"word {number}" for number in range(20)})


def _job(project: Project, spec: Spec, dockerfile: str) -> BuildJob:
    base = BaseImage(
        name=spec.base.name, image=spec.base.image, source="registry", digest=f"sha256:{'d' * 64}", created="now"
    )
    inputs = inputs_digest(
        spec,
        dockerfile=dockerfile,
        lock_text=lock_text(TOOLKIT, spec),
        builder_lock=builder_lock_text(TOOLKIT),
        base_digest=base.digest,
    )
    tags = project.tags[spec.id]
    contexts = {spec.base.image: base.context(project.state)}
    return BuildJob(
        spec=spec,
        ref=ref_of(spec, tags),
        tags=tags,
        inputs=inputs,
        base=base,
        contexts=contexts,
        dockerfile=dockerfile,
        lock=None,
    )


if __name__ == "__main__":
    json.dump({"order": order(), "derived": list(derived())}, sys.stdout)
