"""The tasks of a run, what they share, and the checkpoints that they leave."""
