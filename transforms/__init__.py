"""How it flows: pure functions on Arrow batches, and the files they end up in."""
