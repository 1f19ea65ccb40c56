"""Where the toolkit's own files are: templates, entrypoints, layers, checks."""

from pathlib import Path

TOOLKIT = Path(__file__).resolve().parents[2]
