"""Features: which a dataset has, what each holds and how it is stored."""
