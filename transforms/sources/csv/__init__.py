"""CSV: tables of text, split into rows and typed columns."""
