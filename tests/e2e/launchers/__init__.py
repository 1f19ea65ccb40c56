"""Real launchers, each in machines of its own that a test makes of Debian's packages and leaves nothing of."""
