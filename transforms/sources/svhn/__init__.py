"""The input format of SVHN: MATLAB files of version 5."""
