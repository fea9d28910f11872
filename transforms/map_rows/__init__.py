"""Makes rows from those of a source by a person's own function."""
