"""`run` and `health`: how a container starts its training under any launcher. Standard library only."""
