"""Packages of an image, read from its layers, and their licenses: CycloneDX and SPDX."""
