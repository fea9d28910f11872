"""Maps the folders at the top level to the one package that is installed, `recordmill`.

Everything else about the build stands in pyproject.toml. The folders keep their names
in the checkout; installed, they are recordmill.beam_jobs, recordmill.transforms and
recordmill.schemas, so that a user's own `schemas.py` or `transforms/` never meets them.
"""

import os
from pathlib import Path

from setuptools import Extension, find_packages, setup

ROOMS = ("beam_jobs", "transforms", "schemas")
PUBLIC = "beam_jobs/recordmill"  # the folder of the package `recordmill` itself
LOOPS = Path("transforms/native")

# Without a C compiler the install goes on without it; see transforms/native.
loops = Extension(
    "recordmill.transforms.native._loops",
    sorted(map(str, LOOPS.glob("*.c"))),
    depends=sorted(map(str, LOOPS.glob("*.h"))),
    extra_compile_args=["-O3"],
    py_limited_api=True,  # one file for Python 3.11 and all later ones
    optional=True,
)

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
    # Off as in a run: then the wheel fits every system (py3-none-any).
    ext_modules=[] if os.environ.get("RECORDMILL_COMPILED") == "no" else [loops],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
