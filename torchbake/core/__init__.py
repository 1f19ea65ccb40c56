"""Functions for every room: files, paths, digests, JSON of other programs, signals. No engine and no network."""
