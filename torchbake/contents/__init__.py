"""The contents of an image by layer, file and package: the comparison of two images, and the waste in one."""
