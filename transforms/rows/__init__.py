"""Converts rows of pipelines (dicts, batches, examples, bytes) to records and back."""
