"""Arrow batches and a schema into records: what is written."""
