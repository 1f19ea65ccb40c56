"""The Helm chart: its page, its package with a release's images, and how that gets to a registry and is validated."""
