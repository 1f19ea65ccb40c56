"""Images whose torch does not do its work: a file beside torch breaks one thing of it as it is imported."""

from pathlib import Path

from tests.e2e.broken import Broken

_SABOTAGE = (Path(__file__).parents[1] / "sabotage/sitecustomize.py").read_text()
_FILES = {"sabotage.py": _SABOTAGE, "sabotage.pth": "import sabotage\n"}


def _sabotaged(what: str, sabotage: str) -> Broken:
    return Broken(what=what, files=_FILES, sabotage=sabotage, only="smoke.*")


BROKEN = {
    "smoke.tensor": _sabotaged("determinants are a thousandth too large", "det_is_a_little_off"),
    "smoke.autograd": _sabotaged("steps with infinite gradients are taken", "infinite_gradients_are_used"),
    "smoke.compile": Broken(what="g++ is gone", files=_FILES, commands=("rm /usr/bin/*g++*",), only="smoke.*"),
    "smoke.export": _sabotaged("torch.load runs whatever a file says", "anything_is_unpickled"),
    "smoke.loader": _sabotaged("tensors of workers are not in shared memory", "samples_come_unshared"),
    "smoke.versions": Broken(
        what="a label promises another Python", settings=('LABEL org.torchbake.python="3.10"',), only="smoke.*"
    ),
    "smoke.ddp": _sabotaged("messages between ranks do not come", "messages_do_not_come"),
    "smoke.examples": _sabotaged("a loss has no slope", "losses_have_no_slope"),
}
