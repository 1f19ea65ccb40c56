"""Release an image: decisions, upload, immutable tags, attestations, the release record, rolling tags."""
