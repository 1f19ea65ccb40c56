"""Comparison of a project's torch with the image's. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

# Libraries of CUDA, which torch's wheels bring. Others of NVIDIA's packages are the project's own.
_CUDA = re.compile(
    r"nvidia-(cublas|cuda-cupti|cuda-nvrtc|cuda-runtime|cudnn|cufft|cufile|curand|cusolver|cusparse|cusparselt|nccl"
    r"|nvjitlink|nvshmem|nvtx)(-cu\d+)?"
)


@dataclass(frozen=True, kw_only=True)
class ImageTorch:
    """An image's torch, and the versions of the packages that the image lists with it.

    ``build`` is the version of its code (`torch.__version__`): PyPI's wheel of 2.10.0 has the code 2.10.0+cu128, which
    PyTorch's index for CUDA 12.8 has under that name.
    """

    build: str
    packages: Mapping[str, str]

    @property
    def public(self) -> str:
        return self.build.partition("+")[0]

    def is_same(self, version: str, others: Mapping[str, str]) -> bool:
        """Return True if a version is this torch. ``others`` are the packages of CUDA that come with it.

        A version without a label is PyPI's, for CUDA. It is the same if no library of CUDA has to change.
        """
        public, _, label = version.partition("+")
        if public != self.public:
            return False
        return version == self.build if label else not self.build.endswith("+cpu") and not others


def packages_to_keep(torch: ImageTorch, packages: Mapping[str, str]) -> dict[str, str]:
    """Return the packages to install that would replace the image's torch and CUDA."""
    return {
        name: version
        for name, version in packages.items()
        if name in ("torch", "triton") or name in torch.packages or _CUDA.fullmatch(name)
    }


def refusal(torch: ImageTorch, packages: Mapping[str, str], image: str) -> str:
    """Return the sentences that refuse to install these packages of torch and CUDA."""
    locked_torch = packages.get("torch")
    if locked_torch:
        advice = (
            "Start FROM an image with that torch"
            if locked_torch.partition("+")[0] != torch.public
            else "The accelerator differs: start FROM an image for it, or lock the build of this one"
        )
        return f"the project wants torch {locked_torch}, and this image ({image}) has torch {torch.build}. {advice}."
    name, version = min(packages.items())
    more = f" and {len(packages) - 1} more packages of CUDA" if len(packages) > 1 else ""
    has = f"{name} {torch.packages[name]}" if name in torch.packages else f"torch {torch.build} and no {name}"
    return (
        f"the project wants {name} {version}{more}, and this image ({image}) has {has}. Start FROM an image for that "
        "CUDA, or lock the torch of this one."
    )
