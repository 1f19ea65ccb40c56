"""Images as data: references, tag names, labels, manifests, layouts and layers. No registry and no engine."""
