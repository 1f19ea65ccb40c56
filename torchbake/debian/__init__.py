"""The lock of Debian packages: which packages apt installs in images on a base, each with its hash."""
