"""The input format binary: records of a fixed length, declared or of a known layout."""
