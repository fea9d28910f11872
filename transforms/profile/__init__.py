"""Statistics of a whole input, and the schema file that follows from them."""
