"""torchbake: from one matrix.yaml to tested, tagged and published PyTorch container images."""

__version__ = "0.1.0"
MATRIX_VARIABLE = "TORCHBAKE_MATRIX"  # names the matrix where no --matrix is given
