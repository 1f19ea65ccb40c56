"""From `matrix.yaml` to image specs: read, validate, expand, select, and give out tags."""
