"""Run a shell script in a container of a base, by the executor of a build, and return its output."""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchbake.build.backend import Backend
from torchbake.build.base_image import BaseImage
from torchbake.core.cause import cause_of
from torchbake.errors import BaseError
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.hostconfig.build_secrets import apt_secrets, files_of
from torchbake.hostconfig.pip_config import read_pip_config
from torchbake.hostconfig.proxies import proxy_variables
from torchbake.matrix.spec import BaseSpec

_DOCKERFILE = """\
FROM {image} AS base
RUN --mount=type=secret,id=ca --mount=type=secret,id=apt-conf,target=/etc/apt/apt.conf.d/99host \\
    --mount=type=secret,id=apt-sources,target=/etc/apt/sources.list.d/{distribution}.sources \\
    --mount=type=bind,source=script,target=/run/script --mount=type=bind,source=words,target=/run/words \\
    sh /run/script /run/words > /output
FROM scratch
COPY --from=base /output /output
"""


def output_on_base(
    backend: Backend, spec: BaseSpec, base: BaseImage, *, apt: AptConfig, script: str, words: str
) -> str:
    """Run ``script`` with a file that contains ``words``, and return its output. Raises BaseError and EngineError.

    The script has the host's mirrors and proxies, and no result of an earlier run.
    """
    context = base.context(backend.project.state)
    if backend.saving:
        backend.saving.import_base(base)
        context = base.context_in_engine if base.source == "bootstrap" else context
    pip, variables = read_pip_config(), proxy_variables(os.environ)
    with (
        tempfile.TemporaryDirectory(prefix="torchbake-base-") as name,
        files_of(apt_secrets(pip, apt, spec), pip) as secrets,
    ):
        folder = Path(name)
        (folder / "context").mkdir()
        for file, text in (("script", script), ("words", words)):
            (folder / "context" / file).write_text(text)
        target = _target(spec, context, folder, {name: f"${{{name}}}" for name in variables})
        target["secret"] = [f"id={secret},src={path}" for secret, path in sorted(secrets.items())]
        declared = {variable: {"default": ""} for variable in variables}
        bake = {**({"variable": declared} if declared else {}), "target": {"base": target}}
        (folder / "bake.json").write_text(json.dumps(bake))
        builder = backend.start(cached=False)
        try:
            outcome = builder.build(folder / "bake.json", "base", folder / "log", lambda progress, steps: None)
        finally:
            builder.close()
        if not outcome.ok:
            lines = [*outcome.tail, *outcome.errors]
            raise BaseError(
                f"{spec.name}: apt failed in {spec.image}: {cause_of(lines) or ' '.join(lines[-1:])}",
                hint="Check the mirror, which TORCHBAKE_APT_MIRROR names, and the packages in matrix.yaml.",
            )
        return (folder / "out/output").read_text(encoding="utf-8")


def _target(spec: BaseSpec, context: str, folder: Path, arguments: Mapping[str, str]) -> dict[str, Any]:
    """Return the target of a bake file that runs the script of ``folder/context`` and writes into ``folder/out``."""
    return {
        "context": str(folder / "context"),
        "dockerfile-inline": _DOCKERFILE.format(image=spec.image, distribution=spec.distribution),
        "contexts": {spec.image: context},
        "args": dict(arguments),
        "output": [f"type=local,dest={folder / 'out'}"],
        "platforms": [spec.platform],
        "no-cache": True,
    }
