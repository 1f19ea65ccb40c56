"""Scripts that run inside a container with its Python. Each is complete in itself and imports no other."""
