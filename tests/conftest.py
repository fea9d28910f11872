"""Settings of all tests, and input and output made once for many of them."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from example_counts import examples
from flaky_store import Flaky
from hypothesis import settings
from job_inputs import MixedInput, make_cifar, make_images, make_mixed
from job_tools import IRIS, convert
from store_servers import SERVERS, Place, display_path, listens
from tcp_proxy import proxy_to

from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.machine import available_memory
from recordmill.transforms.storage import RemoteStore
from recordmill.transforms.storage.lease import acquire

ROOT = Path(__file__).parents[1]


# What the tests write at a time, several times over.
MEMORY_BYTES = 4 << 30


def pytest_configure(config: pytest.Config) -> None:
    """Builds the native extension where this checkout has none; chooses a place to write.

    Small runs wait for the disk longer than they compute: 20 times for each output. So
    the folders of tests are in memory, if nobody set TMPDIR and there is room.
    """
    # Not in pyproject.toml: for another text the image would have to be built again.
    config.addinivalue_line(
        "markers", "on_disk: has its folder beside the checkout, not in memory"
    )
    memory = Path("/dev/shm")
    if "TMPDIR" not in os.environ and memory.is_dir():
        if min(shutil.disk_usage(memory).free, available_memory()) > MEMORY_BYTES:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))
    if not any((ROOT / "transforms/native").glob("_loops*.so")):
        build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        subprocess.run(build, cwd=ROOT, check=True)


# Commands that the tests start inherit what is ignored here, as behind `nohup ... &`.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# As rarely as the command looks for cycles: collecting makes a million objects that stay.
gc.set_threshold(50_000)
# Parsers, of which a run makes fifty, look for no translations.
os.environ["LANGUAGE"] = "C"
settings.register_profile("recordmill", examples(100))
settings.load_profile("recordmill")


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """An empty folder; of a test that is marked so, in build/, on the checkout's disk."""
    if request.node.get_closest_marker("on_disk") is None:
        yield tmp_path
        return
    (ROOT / "build").mkdir(exist_ok=True)
    with TemporaryDirectory(dir=ROOT / "build") as folder:
        yield Path(folder)


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
    folder = tmp_path_factory.mktemp("images")
    make_images(folder)
    return folder


@pytest.fixture(scope="module")
def write_csv(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], Path]:
    """Writes one file; the next call writes over it."""
    path = tmp_path_factory.mktemp("csv") / "in.csv"

    def write(body: bytes) -> Path:
        path.write_bytes(body)
        return path

    return write


@pytest.fixture(scope="session")
def iris(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The iris table as a dataset of two shards. Copy it, never change it."""
    output = tmp_path_factory.mktemp("dataset") / "iris"
    convert("csv", IRIS, output, "--shards", 2)
    return output


@pytest.fixture(scope="session")
def rows_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ROWS as a dataset, by WriteDataset. Copy it, never change it."""
    from rows_tools import JOB, ROWS, write  # it imports Beam, which most tests do not

    output = tmp_path_factory.mktemp("rows") / "out"
    write(ROWS, output, **JOB)
    return output


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--stores",
        default="local,folders,memory,s3",
        help="what the contract of stores is tried on; gcs and azure need their servers",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marks = metafunc.definition.iter_markers("parametrize")
    if "store_place" in {mark.args[0] for mark in marks}:
        return  # the test names its stores itself
    if "store_place" in metafunc.fixturenames:
        without = metafunc.definition.iter_markers("not_on")
        left_out = {kind for mark in without for kind in mark.args}
        wanted = metafunc.config.getoption("--stores").split(",")
        kinds = [kind for kind in wanted if kind not in left_out]
        metafunc.parametrize("store_place", kinds, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what talks to a server as slow: its start alone takes seconds."""
    for item in items:
        if "server" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Starts the server of a kind of store when it is first asked for; its address."""
    running: dict[str, tuple[str, Path]] = {}
    with ExitStack() as stack:

        def address_of(kind: str) -> str:
            if kind not in running:
                folder = tmp_path_factory.mktemp(kind)
                running[kind] = stack.enter_context(SERVERS[kind].run(folder)), folder
            address, folder = running[kind]
            if address and not listens(int(address.rpartition(":")[2])):
                # Else each test would try again for minutes before it fails.
                pytest.fail(f"{kind}: no server: {(folder / 'log').read_text()}")
            return address

        yield address_of


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leaves what all tests share out of Python's searches for cycles."""
    gc.freeze()
    if "apache_beam.transforms.core" in sys.modules:
        # The tests run thousands of pipelines.
        from recordmill.beam_jobs.runners.embedded import caching_signatures

        caching_signatures().__enter__()


@pytest.fixture
def without_beam() -> Iterator[None]:
    """Jobs go without a runner, for tests of what inputs and options mean."""
    from plain_runner import without_beam  # it imports Beam

    with without_beam():
        yield


@pytest.fixture
def store_place(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: Callable[[str], str],
) -> Place:
    """An empty root of the kind of store that the test is run for."""
    if request.param == "folders":
        # No exclusive create: each run waits for others, of which there are none here.
        monkeypatch.setitem(acquire.__kwdefaults__, "settle_seconds", 0.1)
    return display_path(request.param, tmp_path, monkeypatch, server)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs to stores work meanwhile."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def flaky(
    server: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Flaky]:
    place = display_path("s3", tmp_path, monkeypatch, server)
    with proxy_to(server("s3")) as proxy:
        options = StorageOptions.from_values({"endpoint_url": proxy.address})
        direct = RemoteStore(place.root, place.options)
        yield Flaky(proxy, RemoteStore(place.root, options), direct)
