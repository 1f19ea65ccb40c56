"""A folder of code as one more layer of a released image, written to its registry without an engine."""
