"""Reads, verifies and compares finished datasets."""
