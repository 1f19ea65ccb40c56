"""What every room uses: files, paths, digests, JSON from elsewhere, signals. No engine and no network."""
