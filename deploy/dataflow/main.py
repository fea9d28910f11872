"""What a Flex launcher, or Airflow's Beam operator, calls: see beam_jobs.flex."""

from beam_jobs.flex import main

if __name__ == "__main__":
    main()
