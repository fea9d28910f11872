"""The input formats Parquet and Arrow IPC: tables whose columns have types."""
