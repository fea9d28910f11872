"""CIFAR-10 and CIFAR-100 binary files: records of a fixed length."""
