"""The input format CSV: text tables, split into rows and typed columns."""
