"""Report: one HTML page about all images."""
