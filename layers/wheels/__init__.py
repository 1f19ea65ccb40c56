"""Runs inside a build: installs locked wheels, trims them, and lays them out as layers.

Standard library only, as the builder has nothing else. The module `contents` lays out the wheels of NVIDIA and torch,
in a build and in the toolkit; uv installs the others.
"""
