"""Data types without storage: schemas, jobs, ranges, plans and manifests."""
