"""Checks of images: pytest over the image checks, smoke tests in containers, saved verdicts, waivers."""
