"""Images: a folder per class, one file per record."""
