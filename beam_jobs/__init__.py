"""Who runs it: the command, the pipeline and the runners."""
