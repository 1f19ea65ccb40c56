"""Run a shell script in a container of a base, by the executor of a build, and return its output."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from torchbake.build.bake_variables import bake_frame
from torchbake.build.buildkit_progress import BuildStep, Progress
from torchbake.build.buildx import BuildOutcome
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


class ScriptBuilder(Protocol):
    """A runner of targets of bake files."""

    def build(
        self, bake_file: Path, target: str, log: Path, on_step: Callable[[Progress, list[BuildStep]], None]
    ) -> BuildOutcome: ...
    def close(self) -> None: ...


def output_on_base(
    builder: ScriptBuilder, spec: BaseSpec, context: str, *, apt: AptConfig, script: str, words: str
) -> str:
    """Run ``script`` with a file that contains ``words``, and return its output. Raises BaseError and EngineError.

    The ``context`` is the base. The script has the host's mirrors and proxies, and no result of an earlier run. The
    ``builder`` is closed at the end.
    """
    pip = read_pip_config()
    with (
        tempfile.TemporaryDirectory(prefix="torchbake-base-") as name,
        files_of(apt_secrets(pip, apt, spec), pip) as secrets,
    ):
        folder = Path(name)
        (folder / "context").mkdir()
        for place, text in (("script", script), ("words", words)):
            (folder / "context" / place).write_text(text)
        target = {
            "context": str(folder / "context"),
            "dockerfile-inline": _DOCKERFILE.format(image=spec.image, distribution=spec.distribution),
            "contexts": {} if spec.digest else {spec.image: context},
            "secret": [f"id={secret},src={path}" for secret, path in sorted(secrets.items())],
            "output": [f"type=local,dest={folder / 'out'}"],
            "platforms": [spec.platform],
            "no-cache": True,
        }
        file = bake_frame({"base": target}, ["base"], proxy_variables(os.environ))
        (folder / "bake.json").write_text(json.dumps(file))
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
        return (folder / "out/output").read_text(encoding="utf-8", errors="replace")
