"""What an image holds, read from its layers, and which licenses that has: CycloneDX and SPDX."""
