"""How records reach their shards: sorted runs, and the slices gathered from them."""
