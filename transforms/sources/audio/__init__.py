"""Audio: a folder per class, one file per record."""
