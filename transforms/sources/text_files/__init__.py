"""Text files: a folder per class, one file per record."""
