"""Images as data: references, tag names, labels, manifests and layers. No registry and no engine."""
