"""From an image spec and its lock to a Dockerfile. Pure."""
