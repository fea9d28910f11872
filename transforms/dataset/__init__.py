"""Finished datasets: reading, verifying, comparing."""
