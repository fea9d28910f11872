"""The input format TFRecord: existing records, kept unchanged or decoded."""
