"""Runs the command: `python -m recordmill`."""

from recordmill.beam_jobs.cli.main import main

if __name__ == "__main__":
    main()
