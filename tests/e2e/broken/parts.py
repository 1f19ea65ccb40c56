"""Images that were trimmed of something that somebody needs."""

from tests.e2e.broken import Broken

# Behind its end a library may have anything: it loads as before. A small one, since the copy of a large one in a layer
# is files.waste.
_ALTERED = """\
import base64, glob, hashlib, pathlib, re
(library,) = map(pathlib.Path, glob.glob("/nvidia/nvidia/nvtx/lib/libnvToolsExt.so.*"))
(record,) = map(pathlib.Path, glob.glob("/nvidia/nvidia_nvtx*.dist-info/RECORD"))
library.write_bytes(library.read_bytes() + bytes(8))
data = library.read_bytes()
digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
row = f"nvidia/nvtx/lib/{library.name},"
text = re.sub(f"{re.escape(row)}.*", f"{row}sha256={digest},{len(data)}", record.read_text())
assert digest in text
record.write_text(text)
"""

BROKEN = {
    "parts.traces": Broken(
        what="an error's message is lost when its C++ stack is asked for",
        entrypoint=("unset TORCH_DISABLE_ADDR2LINE",),
        commands=("rm /usr/bin/*addr2line",),
    ),
    "parts.triton": Broken(
        what="the functions that Triton's kernels call are gone, and its books say so",
        base="cuda",
        commands=(
            "rm /pytorch/triton/backends/nvidia/lib/libdevice.10.bc",
            "sed -i '/libdevice.10.bc/d' /pytorch/triton-*.dist-info/RECORD",
        ),
    ),
    "parts.nvidia": Broken(
        what="NVRTC's built-in functions are gone, and its books say so",
        base="cuda",
        commands=(
            "rm /nvidia/nvidia/*/lib/libnvrtc-builtins.so.*",
            "sed -i '/libnvrtc-builtins/d' /nvidia/nvidia_cuda_nvrtc*.dist-info/RECORD",
        ),
    ),
    "parts.unaltered": Broken(
        what="a library of NVIDIA's is another one, and its books say so",
        base="cuda",
        script=_ALTERED,
    ),
    "parts.licenses": Broken(
        what="the license text of cuFile is gone, and its books say so",
        base="cuda",
        commands=(
            "rm /nvidia/nvidia_cufile*.dist-info/License.txt",
            "sed -i '/License.txt/d' /nvidia/nvidia_cufile*.dist-info/RECORD",
        ),
    ),
}
