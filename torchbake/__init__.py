"""torchbake: from one matrix.yaml to tested, tagged and published PyTorch container images."""

try:
    from torchbake._version import __version__  # type: ignore[import-not-found,unused-ignore] # written by a build
except ImportError:  # a checkout that nobody has installed: core/version.py asks git
    __version__ = "0+checkout"

__all__ = ["ADVISORIES_VARIABLE", "MATRIX_VARIABLE", "REGISTRY_VARIABLE", "__version__"]
ADVISORIES_VARIABLE = "TORCHBAKE_ADVISORIES"  # names files of advisories where no --advisories is given
MATRIX_VARIABLE = "TORCHBAKE_MATRIX"  # names the matrix where no --matrix is given
REGISTRY_VARIABLE = "TORCHBAKE_REGISTRY"  # names the registry where no --registry is given
