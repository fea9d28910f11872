"""Columns of a source into the columns of declared features."""
