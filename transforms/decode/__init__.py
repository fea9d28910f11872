"""Records back into Arrow batches and values: what is read."""
