"""The input format WebDataset: tar shards in which files with one key form a sample."""
