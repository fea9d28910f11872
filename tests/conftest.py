"""Settings of all tests, and input and output made once for many of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from job_inputs import MixedInput, make_cifar, make_mixed, make_pictures
from job_tools import IRIS, convert

# How long one example takes tells more of the machine's load than of the code.
settings.register_profile("recordmill", deadline=None)
settings.load_profile("recordmill")


@pytest.fixture(scope="session")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> MixedInput:
    return make_mixed(tmp_path_factory.mktemp("mixed"))


@pytest.fixture(scope="session")
def cifar_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cifar")
    make_cifar(folder)
    return folder


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    make_pictures(folder)
    return folder


@pytest.fixture(scope="session")
def iris(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The iris table as a dataset of two shards. Copy it, never change it."""
    output = tmp_path_factory.mktemp("dataset") / "iris"
    convert("csv", IRIS, output, "--shards", 2)
    return output
