"""Signals while a command acquires or releases its lease: none leaves the lease behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
import signalled_release
from example_counts import FACTOR
from job_tools import HANG_SECONDS, ended, python, wait_until
from test_signals import SIGNALS

from recordmill.schemas.errors import Interrupted
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.storage.lease import LEASE_NAME, acquire, release_all

# Three for each line, and more than there are; behind the last one no signal is sent.
TRIES = range(0, 660, 1 if FACTOR > 1 else 37)
STATUSES = {128 + number for number, *_ in SIGNALS}


def test_a_signal_at_each_line(tmp_path: Path) -> None:
    """All lines with each signal in `make test-long`, some in `make test`."""
    code = Path(signalled_release.__file__).read_text()
    ran = python(code, tmp_path, *TRIES)
    assert ran.status == 0, ran.err
    tries = [json.loads(line) for line in ran.out.splitlines()]
    assert [attempt["number"] for attempt in tries] == list(TRIES)
    assert [attempt for attempt in tries if attempt["left"]] == []
    interrupted = [attempt for attempt in tries if attempt["status"] in STATUSES]
    assert len(interrupted) > len(TRIES) // 2
    assert all(a["status"] == 0 for a in tries if a not in interrupted)


@pytest.fixture
def interrupts() -> Iterator[threading.Event]:
    """Makes the first SIGTERM raise Interrupted, as in the command; set when it did."""
    raised = threading.Event()

    def interrupt(number: int, _: FrameType | None) -> None:
        if not raised.is_set():
            raised.set()
            raise Interrupted(number, "SIGTERM")

    before = signal.signal(signal.SIGTERM, interrupt)
    yield raised
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("operation", ["discard", "swap"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_signal_amid_a_change_of_the_file(
    tmp_path: Path, interrupts: threading.Event, operation: str, when: str
) -> None:
    """The change goes on; whoever was interrupted waits for it before the process ends."""

    class Signalling(LocalStore):
        def interrupt(self, moment: str, caller: str) -> None:
            if (moment, caller) == (when, operation) and not interrupts.is_set():
                os.kill(os.getpid(), signal.SIGTERM)
                assert interrupts.wait(HANG_SECONDS)

        def discard(self, name: str, *, expected_content: bytes) -> bool:
            self.interrupt("before", "discard")
            is_gone = LocalStore.discard(self, name, expected_content=expected_content)
            self.interrupt("after", "discard")
            return is_gone

        def swap(
            self, data: bytes, name: str, *, expected_content: bytes | None
        ) -> bool:
            self.interrupt("before", "swap")
            is_put = LocalStore.swap(
                self, data, name, expected_content=expected_content
            )
            self.interrupt("after", "swap")
            return is_put

    store = Signalling(str(tmp_path / "out"))
    with pytest.raises(Interrupted), acquire(store):
        pass
    release_all()
    assert store.list() == {}
    assert [*tmp_path.rglob("*")] in ([], [tmp_path / "out"])
    with acquire(store) as lease:
        lease.require_held()


HANGING = """
import sys, threading
from pathlib import Path
from recordmill.beam_jobs.cli import main as cli, signals
from recordmill.transforms.storage import LocalStore

def hang(*arguments, **options):
    Path(sys.argv[1]).touch()
    threading.Event().wait()

LocalStore.discard = hang
signals.DEADLINE_SECONDS = 0.1
cli.main(["clean", sys.argv[2]])
"""


def test_a_release_that_hangs_ends_at_the_deadline(tmp_path: Path) -> None:
    """The storage does not answer: the lease stays, as that of a dead process."""
    output, begun = tmp_path / "out", tmp_path / "begun"
    (output / signalled_release.RUN_LOG).parent.mkdir(parents=True)
    line = [sys.executable, "-c", HANGING, str(begun), str(output)]
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until(begun.exists, process)
        process.send_signal(signal.SIGTERM)
        ran = ended(process)
    assert ran.status == 143
    assert "Interrupted by SIGTERM" in ran.err
    store = LocalStore(str(output))
    assert store.size(LEASE_NAME)
    with acquire(store) as lease:  # at once, as its process has ended
        lease.require_held()
