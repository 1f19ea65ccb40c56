"""The record of a whole matrix that was built, tested and released, and the page `docs/images.md`."""
