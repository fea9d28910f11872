"""The input format audio: one record per file, in one folder per class."""
