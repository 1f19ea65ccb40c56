"""Images with wrong metadata: labels, tags, configuration or environment."""

from tests.e2e.broken import Broken

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
        what="a label names another license", settings=('LABEL org.opencontainers.image.licenses="MIT"',)
    ),
    "metadata.origin": Broken(
        what="the revision is not filled in", settings=('LABEL org.opencontainers.image.revision=""',)
    ),
    "metadata.content": Broken(
        what="torch is of another version than its wheel and the label say",
        script=_WRONG_TORCH,
    ),
    "metadata.tags": Broken(
        what="the CPU image carries a tag of a CUDA row",
        settings=("LABEL broken=tags",),
        tag="pytorch:2.7.1-cuda12.6-cudnn9-runtime-debian12",
    ),
    "metadata.user": Broken(what="USER is a name", settings=("USER torch",)),
    "metadata.entrypoint": Broken(
        what="the init has an option more",
        settings=('ENTRYPOINT ["/usr/bin/tini", "-g", "-w", "--", "/opt/torchbake/entrypoint"]', 'CMD ["python"]'),
    ),
    "metadata.cmd": Broken(what="CMD is a shell", settings=('CMD ["bash"]',)),
    "metadata.workdir": Broken(what="WORKDIR is another", settings=("WORKDIR /tmp",)),
    "metadata.ports": Broken(what="a port is declared", settings=("EXPOSE 8888",)),
    "metadata.volumes": Broken(what="a volume is declared", settings=("VOLUME /srv",)),
    "metadata.env": Broken(what="a variable more", settings=("ENV OMP_NUM_THREADS=1",)),
    "metadata.env-secrets": Broken(what="a token in ENV", settings=("ENV WANDB_API_KEY=0123456789abcdef",)),
    "metadata.history-secrets": Broken(
        what="a password as a build argument",
        dockerfile="ARG INDEX_PASSWORD=hunter2\n",
        commands=(": > /opt/index",),
    ),
    "metadata.extras": Broken(what="a stop signal that nobody asked for", settings=("STOPSIGNAL SIGINT",)),
}
