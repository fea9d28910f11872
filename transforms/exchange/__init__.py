"""Brings records to the writers of their shards, through files or the runner."""
