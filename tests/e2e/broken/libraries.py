"""Images in which the loader does not find what it needs, or finds the wrong one."""

from tests.e2e.broken import SITE, Broken

# A small part, because the copy that a layer makes of a large one is files.waste.
_HALF_CUDNN = """\
import glob, os
(path,) = glob.glob("/nvidia/nvidia/cudnn/lib/libcudnn_cnn.so.*")
size = os.stat(path).st_size
os.truncate(path, 64)
os.truncate(path, size)
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
