"""From a bare machine to an engine that builds, and back."""
