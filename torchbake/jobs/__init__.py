"""From one job.yaml to what a launcher takes: the mirror image of the dialects that read what launchers set."""
