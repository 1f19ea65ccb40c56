"""What runs inside a container, by its own Python: each module is a script on its own, and imports no other."""
