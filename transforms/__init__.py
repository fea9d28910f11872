"""Functions on Arrow batches, and on the files that they are read from and written to."""
