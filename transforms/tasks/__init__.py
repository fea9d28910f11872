"""The tasks of one run, what they share, and what they leave for the next try."""
