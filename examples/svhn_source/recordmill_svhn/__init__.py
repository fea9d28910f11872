"""The input format `svhn`: cropped digits in MATLAB files."""
