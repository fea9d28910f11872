"""Statistics of inputs and of finished datasets."""
