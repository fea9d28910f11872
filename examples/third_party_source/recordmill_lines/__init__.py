"""The input format `lines`: a record for each line of a text file."""
