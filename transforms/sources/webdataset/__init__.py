"""The input format WebDataset: tar shards whose files of one key are a sample."""
