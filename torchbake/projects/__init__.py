"""A person's project: its lock becomes the lock of an image, with versions and hashes unchanged."""
