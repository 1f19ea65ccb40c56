"""Exact wheels with hashes for an image: resolved by uv, checked against the row, kept in `requirements.lock`."""
