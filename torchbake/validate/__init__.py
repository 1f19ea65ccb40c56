"""Validation of the images in a registry: their manifests and attachments, and their contents after a pull."""
