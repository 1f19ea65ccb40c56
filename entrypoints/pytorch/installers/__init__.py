"""`keep-torch`: installers that leave the image's torch in its place."""
