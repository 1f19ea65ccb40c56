"""Samples: synthetic ones, or images of a folder or of a Caffe LMDB, decoded and augmented by the loader's workers."""
