"""The input format IDX, in which MNIST is published."""
