"""The input format images: one record per file, in one folder per class."""
