"""Runs inside a build: installs locked wheels, trims them, and lays them out as layers.

Standard library only, because the builder has nothing else. Wheels of NVIDIA and torch are laid out by `contents`, here
and by the toolkit alike; uv installs the others.
"""
