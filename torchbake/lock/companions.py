"""The versions of torchvision and torchaudio that fit a version of torch. Pure.

Their wheels are built against one torch and for one accelerator, which the local version names (``+cpu``). PyPI has
only wheels for CUDA.

Sources of the versions:

- https://github.com/pytorch/vision#installation: torchvision 0.(N+15).P belongs to torch 2.N.P, from torch 2.1 on.
- https://docs.pytorch.org/audio/stable/installation.html: torchaudio 2.N.P belongs to torch 2.N.P.
- The wheels' metadata on PyPI: torchvision 0.29.2 requires ``torch>=2.14.0``, and torchaudio 2.11.0 any torch. They are
  built against torch's stable ABI (https://docs.pytorch.org/docs/stable/notes/libtorch_stable_abi.html). So they and
  later versions also fit later versions of torch.
"""

from packaging.version import Version

# The first torch whose stable ABI a package uses, and the first version of the package that uses it.
_STABLE = {"torchaudio": ("2.11", "2.11.0"), "torchvision": ("2.14", "0.29.2")}
COMPANIONS = frozenset(_STABLE)
_FIRST_OF_THE_RULE = Version("2.1")  # torch 2.0.1 has torchvision 0.15.2, and 1.x other numbers


def companions(torch: str) -> tuple[str, ...]:
    """Return a requirement for each package, such as ``torchvision==0.28.0+cpu``; none for torch before 2.1."""
    version = Version(torch)
    if version < _FIRST_OF_THE_RULE:
        return ()
    label = f"+{version.local}" if version.local else ""
    numbers = {"torchaudio": f"{version.major}.{version.minor}", "torchvision": f"0.{version.minor + 15}"}
    matches = []
    for name, (since, first) in sorted(_STABLE.items()):
        if version < Version(since):
            matches.append(f"{name}=={numbers[name]}.{version.micro}{label}")
        else:
            # Only `==` can name a local version (PEP 440). Without one a wheel of PyPI for CUDA would also fit.
            matches.append(f"{name}=={first}{label}" if label else f"{name}>={first}")
    return tuple(matches)
