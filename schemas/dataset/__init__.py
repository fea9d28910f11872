"""A dataset on disk: manifest, parts and shards."""
