"""Render one job.yaml for a launcher: the counterpart of the dialects, which read the launchers' variables."""
