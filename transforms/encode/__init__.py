"""Encodes Arrow batches as records, by a schema."""
