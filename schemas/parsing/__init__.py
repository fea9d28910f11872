"""Text into checked values: schema files, YAML and schema.pbtxt."""
