"""The store: blobs by digest, the layers and images that they belong to, and the server that engines pull from."""
