"""Packages that PyTorch releases together with torch: which of their versions fit one torch. Pure.

A wheel of torchvision or torchaudio is built against one torch, and for the same accelerator, which its local version
names as torch's does (``+cpu``). PyPI has the wheels for CUDA alone.

Sources of the versions:

- https://github.com/pytorch/vision#installation: torchvision 0.(N+15).P belongs to torch 2.N.P, from torch 2.1 on.
- https://docs.pytorch.org/audio/stable/installation.html: torchaudio 2.N.P belongs to torch 2.N.P.
- The wheels' metadata on PyPI: torchvision 0.29.2 requires ``torch>=2.14.0`` and torchaudio 2.11.0 no certain torch.
  They are built against torch's stable ABI (https://docs.pytorch.org/docs/stable/notes/libtorch_stable_abi.html), so
  they and their successors also fit later versions of torch.
"""

from packaging.version import Version

# By package: the first torch with a stable ABI that it uses, and its first version that uses it.
_STABLE = {"torchaudio": ("2.11", "2.11.0"), "torchvision": ("2.14", "0.29.2")}
COMPANIONS = frozenset(_STABLE)
_FIRST_OF_THE_RULE = Version("2.1")  # torch 2.0.1 has torchvision 0.15.2, and 1.x other numbers


def companions(torch: str) -> tuple[str, ...]:
    """The requirements that keep each companion on what fits ``torch``, such as ``torchvision==0.28.0+cpu``.

    Empty for a torch that is older than the rule.
    """
    version = Version(torch)
    if version < _FIRST_OF_THE_RULE:
        return ()
    return tuple(_requirement(name, version) for name in sorted(COMPANIONS))


def _requirement(name: str, torch: Version) -> str:
    label = f"+{torch.local}" if torch.local else ""
    since, first = _STABLE[name]
    if torch < Version(since):
        offset = {"torchaudio": f"{torch.major}.{torch.minor}", "torchvision": f"0.{torch.minor + 15}"}
        return f"{name}=={offset[name]}.{torch.micro}{label}"
    # Only `==` can ask for a local version (PEP 440), and without one PyPI's build for CUDA would fit as well.
    return f"{name}=={first}{label}" if label else f"{name}>={first}"
