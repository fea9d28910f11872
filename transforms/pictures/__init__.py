"""Pictures told apart by their bytes: format and size, without decoding."""
