"""One module a command, thin: its options, a call into a room, and what is shown."""
