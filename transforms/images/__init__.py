"""Recognizes, checks, decodes, transforms and encodes images."""
