"""Images in which the loader does not find what it needs, or finds the wrong one."""

from tests.e2e.broken import SITE, Broken

# A part more, since each of NVIDIA's own must be as its wheel has it. It begins as a library does, and ends there.
_HALF_CUDNN = """\
import glob, os
(path,) = glob.glob("/nvidia/nvidia/cudnn/lib/libcudnn_cnn.so.*")
with open(path, "rb") as whole, open(path.replace("_cnn", "_late"), "wb") as half:
    half.write(whole.read(64).ljust(4096, b"\\0"))
(record,) = glob.glob("/nvidia/nvidia_cudnn*.dist-info/RECORD")
with open(record, "a") as rows:
    rows.write(os.path.relpath(path.replace("_cnn", "_late"), "/nvidia") + ",,\\n")
"""

BROKEN = {
    "libraries.ldd": Broken(
        what="a library is gone that git's https needs",
        commands=("rm /usr/lib/x86_64-linux-gnu/libcurl-gnutls.so.*",),
    ),
    "libraries.ldd-path": Broken(
        what="a package brings a libz of its own, which is none",
        commands=(f"cp /lib/x86_64-linux-gnu/libutil.so.1 {SITE}/numpy.libs/libz.so.1",),
    ),
    "libraries.cuda": Broken(
        what="a part of cuDNN, which is loaded late, is damaged",
        base="cuda",
        script=_HALF_CUDNN,
    ),
}
