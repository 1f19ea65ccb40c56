"""Images whose Python packages differ from the lock or are incomplete."""

from tests.e2e.broken import SITE, Broken
from torchbake.render.installers import CONSTRAINTS

_EXTRA = "Metadata-Version: 2.1\nName: extra\nVersion: 1.0\n"
# Each script keeps the size of its file, because another check compares sizes with RECORD.
_NEEDS_MORE = f"""\
import glob, re
(path,) = glob.glob("{SITE}/jinja2-*.dist-info/METADATA")
with open(path, "r+b") as file:
    text = file.read()
    file.seek(0)
    file.write(re.sub(rb"(Requires-Dist: MarkupSafe>=)\\d", rb"\\g<1>9", text))
"""
_NO_IMPORT = f"""\
import glob, os
path = "{SITE}/networkx/__init__.py"
with open(path, "r+b") as file:
    file.write(b"raise ImportError('broken')  # ")
for compiled in glob.glob("{SITE}/networkx/__pycache__/__init__.*.pyc"):
    os.unlink(compiled)
"""
_OTHER_BUILD = """\
import glob, os, re
path = "/pytorch/torch/version.py"
with open(path, "r+b") as file:
    text = file.read()
    before = re.search(rb"cuda: [^=]*= None", text)[0]
    file.seek(0)
    file.write(text.replace(before, b"cuda = '12.6'".ljust(len(before))))
for compiled in glob.glob("/pytorch/torch/__pycache__/version.*.pyc"):
    os.unlink(compiled)
"""


def _by(what: str, script: str) -> Broken:
    return Broken(what=what, script=script)


BROKEN = {
    "python.locked": Broken(
        what="a package that is not in the lock",
        copies={f"{SITE}/extra-1.0.dist-info/METADATA": _EXTRA},
    ),
    "python.constraints": Broken(
        what="the constraints name another torch than the one that is there",
        commands=(f"echo torch==2.13.0 > {CONSTRAINTS}",),
    ),
    "python.requirements": _by("jinja2 wants a markupsafe that there is not", _NEEDS_MORE),
    "python.records": Broken(
        what="a file of a wheel is gone", commands=(f"rm {SITE}/networkx-*.dist-info/licenses/LICENSE.txt",)
    ),
    "python.imports": _by("networkx cannot be imported", _NO_IMPORT),
    "python.build": _by("torch says that it is built for CUDA", _OTHER_BUILD),
    "python.cpu-only": Broken(
        what="a CUDA runtime in a CPU image",
        commands=("mkdir -p /usr/local/cuda/lib64", "cp /lib/x86_64-linux-gnu/libutil.so.1 "
                           "/usr/local/cuda/lib64/libcudart.so.12",),
    ),
    "python.one-cuda": Broken(
        what="a runtime of CUDA 11 beside that of CUDA 12",
        base="cuda",
        commands=("mkdir -p /opt/old", "cp /lib/x86_64-linux-gnu/libutil.so.1 /opt/old/libcudart.so.11.0",),
    ),
    "python.duplicates": Broken(
        what="a second NCCL, as apt would install it",
        base="cuda",
        commands=("cp /lib/x86_64-linux-gnu/libutil.so.1 /usr/lib/x86_64-linux-gnu/libnccl.so.2",),
    ),
}  # fmt: skip
