"""Runs inside a build: installs locked wheels, trims them, and lays them out as layers.

Standard library only, because the builder has nothing else. uv does the installing.
"""
