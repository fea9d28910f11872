"""Rows that a pipeline brings: dicts, batches, examples, bytes; into blocks and back."""
