"""Speed, measured: a plan of experiments on images and hosts, and two images told apart."""
