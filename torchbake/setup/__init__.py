"""Install and start an engine that builds on a bare machine, and remove it again."""
