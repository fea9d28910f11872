"""What flows: schemas, jobs, ranges, plans and manifests, as values without storage."""
