"""Speed measurements: a plan of experiments on images and hosts, and the comparison of two images."""
