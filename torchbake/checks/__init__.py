"""Judging an image: pytest over the image checks, smoke tests in containers, verdicts that are kept, waivers."""
