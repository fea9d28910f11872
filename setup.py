"""Maps the folders at the top level to the one package that is installed, `recordmill`.

Everything else about the build stands in pyproject.toml. The folders keep their names
in the checkout; installed, they are recordmill.beam_jobs, recordmill.transforms and
recordmill.schemas, so that a user's own `schemas.py` or `transforms/` never meets them.
"""

from setuptools import find_packages, setup

ROOMS = ("beam_jobs", "transforms", "schemas")
PUBLIC = "beam_jobs/recordmill"  # the folder of the package `recordmill` itself

setup(
    packages=[
        "recordmill",
        *(
            f"recordmill.{package}"
            for package in find_packages(include=[f"{room}*" for room in ROOMS])
            if package != PUBLIC.replace("/", ".")
        ),
    ],
    package_dir={
        "recordmill": PUBLIC,
        **{f"recordmill.{room}": room for room in ROOMS},
    },
)
