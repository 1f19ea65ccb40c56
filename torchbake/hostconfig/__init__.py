"""The host's own settings for pip, uv, apt and proxies, and how a build gets them without keeping them."""
