"""The input format JSON Lines: a row is an object in a line of its own."""
