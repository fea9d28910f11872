"""The service that takes a run from its options to its outcome, without Beam graphs."""
