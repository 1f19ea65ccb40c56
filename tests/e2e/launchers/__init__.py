"""Real launchers on temporary machines, which a test makes from Debian packages and removes at the end."""
