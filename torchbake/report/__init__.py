"""One page with all images: collected, modelled, drawn."""
