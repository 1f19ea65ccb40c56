"""Proving what a registry serves, from the registry alone and by pulling it."""
