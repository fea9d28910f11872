"""What a Flex launcher, or Airflow's Beam operator, calls: see recordmill.beam_jobs.cli.flex_template."""

from recordmill.beam_jobs.cli.flex_template import main

if __name__ == "__main__":
    main()
