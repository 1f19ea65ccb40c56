"""Samples: synthetic, or images of a folder or a Caffe LMDB, decoded and augmented by the loader's workers."""
