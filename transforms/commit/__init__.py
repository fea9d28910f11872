"""Publishes a dataset, and cleans up after runs that were killed."""
