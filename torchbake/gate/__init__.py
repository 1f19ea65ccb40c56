"""The gate of a release: which known vulnerabilities refuse an image, and which are accepted for a reason."""
