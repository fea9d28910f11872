"""What a person or a program is shown: summaries, progress, metrics."""
