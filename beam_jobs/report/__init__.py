"""Output of runs and commands: summaries, progress, metrics, pages."""
