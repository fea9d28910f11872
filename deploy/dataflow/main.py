"""Starts a job for a Flex launcher or Airflow's Beam operator (see flex_template.py)."""

from recordmill.beam_jobs.cli.flex_template import main

if __name__ == "__main__":
    main()
