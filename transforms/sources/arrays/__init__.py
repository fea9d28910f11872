"""Input formats of arrays: rows of equal size in one file or in several files."""
