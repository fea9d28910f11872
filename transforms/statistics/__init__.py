"""Figures of a finished dataset: what one look at all of its rows found."""
