"""The job: what is converted and how, from options or a job file."""
