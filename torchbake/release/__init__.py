"""Releasing an image: what to do, upload, immutable tags, attestations, the release record, rolling tags."""
