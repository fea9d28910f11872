"""Recognizes, checks and decodes audio files."""
