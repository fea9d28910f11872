"""Casts the columns of a source to declared features."""
