"""The command line, the pipelines and the runners that execute jobs."""
