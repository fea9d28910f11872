"""Rows of a user's pipeline (dicts, batches, examples, bytes) to records and back."""
