"""The input format TFRecord: records that are there already, kept or decoded."""
