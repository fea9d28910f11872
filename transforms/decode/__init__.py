"""Decodes records to Arrow batches and values."""
