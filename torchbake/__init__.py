"""torchbake: from one matrix.yaml to tested, tagged and published PyTorch container images."""
