"""The input format text: one record per line, or one record per file."""
