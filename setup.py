"""Finds the package below src/ and builds its native extension.

Everything else about the build is in pyproject.toml. `src/recordmill` links to the three
folders at the top level, so that they are recordmill.beam_jobs, recordmill.transforms and
recordmill.schemas for every tool, and a user's own `schemas.py` is never in their way. Git
and unzip write such a link as a small text file if the system has no links or they are
switched off. Then the folders themselves are mapped to the names in the package.
"""

import os
from pathlib import Path

from setuptools import Extension, find_packages, setup

FOLDERS = ("beam_jobs", "transforms", "schemas")

package_dir = {"": "src"}
packages = find_packages("src")
native = Path("src/recordmill/transforms/native")
if not all(Path("src/recordmill", folder).is_dir() for folder in FOLDERS):
    package_dir |= {f"recordmill.{folder}": folder for folder in FOLDERS}
    below = find_packages(include=[f"{folder}*" for folder in FOLDERS])
    packages = ["recordmill", *(f"recordmill.{package}" for package in below)]
    native = Path("transforms/native")

# Without a C compiler the install continues without it; see transforms/native.
loops = Extension(
    "recordmill.transforms.native._loops",
    sorted(path.as_posix() for path in native.glob("*.c")),
    depends=sorted(path.as_posix() for path in native.glob("*.h")),
    extra_compile_args=["-O3"],
    py_limited_api=True,  # one file for Python 3.11 and all later ones
    optional=True,
)

setup(
    packages=packages,
    package_dir=package_dir,
    # Switched off as in a run: then the wheel fits every system (py3-none-any).
    ext_modules=[] if os.environ.get("RECORDMILL_COMPILED") == "no" else [loops],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
