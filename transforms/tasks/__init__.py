"""Contains the tasks of a run, their shared context and their checkpoints."""
