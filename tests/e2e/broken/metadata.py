"""Images that say of themselves what is not so."""

from tests.e2e.broken import Broken, as_root

_WRONG_TORCH = """\
import glob, pathlib, re
file = pathlib.Path("/pytorch/torch/version.py")
text = file.read_text()
file.write_text(re.sub(r"(__version__ = '\\d+\\.)\\d\\d", r"\\g<1>99", text))
for compiled in glob.glob("/pytorch/torch/__pycache__/version.*.pyc"):
    pathlib.Path(compiled).unlink()
"""

BROKEN = {
    "metadata.labels": Broken(
        what="a label names another license", dockerfile='LABEL org.opencontainers.image.licenses="MIT"\n'
    ),
    "metadata.origin": Broken(
        what="the revision is not filled in", dockerfile='LABEL org.opencontainers.image.revision=""\n'
    ),
    "metadata.content": Broken(
        what="torch is of another version than its wheel and the label say",
        files={"break.py": _WRONG_TORCH},
        dockerfile="USER 0\nRUN --mount=target=/run/break python3 /run/break/break.py\nUSER 1001\n",
    ),
    "metadata.tags": Broken(
        what="the CPU image carries a tag of a CUDA row",
        dockerfile="LABEL broken=tags\n",
        tag="pytorch:2.7.1-cuda12.6-cudnn9-runtime-debian12",
    ),
    "metadata.user": Broken(what="USER is a name", dockerfile="USER torch\n"),
    "metadata.entrypoint": Broken(
        what="the init has an option more",
        dockerfile='ENTRYPOINT ["/usr/bin/tini", "-g", "-w", "--", "/opt/torchbake/entrypoint"]\nCMD ["python"]\n',
    ),
    "metadata.cmd": Broken(what="CMD is a shell", dockerfile='CMD ["bash"]\n'),
    "metadata.workdir": Broken(what="WORKDIR is another", dockerfile="WORKDIR /tmp\n"),
    "metadata.ports": Broken(what="a port is declared", dockerfile="EXPOSE 8888\n"),
    "metadata.volumes": Broken(what="a volume is declared", dockerfile="VOLUME /srv\n"),
    "metadata.env": Broken(what="a variable more", dockerfile="ENV OMP_NUM_THREADS=1\n"),
    "metadata.env-secrets": Broken(what="a token in ENV", dockerfile="ENV WANDB_API_KEY=0123456789abcdef\n"),
    "metadata.history-secrets": Broken(
        what="a password as a build argument",
        dockerfile="ARG INDEX_PASSWORD=hunter2\n" + as_root(": > /opt/index"),
    ),
    "metadata.extras": Broken(what="a stop signal that nobody asked for", dockerfile="STOPSIGNAL SIGINT\n"),
}
