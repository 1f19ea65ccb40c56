"""What stands behind `run` and `health`: the env contract of an image. Standard library only."""
