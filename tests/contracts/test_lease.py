"""Two runs on one output: one has it, the others are told; the dead let go."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import doomed
import pytest
from store_servers import SECRET, Place

from recordmill.schemas.errors import OutputError
from recordmill.transforms.storage import LocalStore, Store, lease
from recordmill.transforms.storage.lease import (
    LEASE_NAME,
    Holder,
    Lease,
    acquire,
    require_holder,
)

SHORT = 3.0  # S3 tells times in whole seconds


def take(store: Store, seconds: float = SHORT) -> Lease:
    return acquire(store, lease_seconds=seconds, settle_seconds=0.5)


def plant(store: Store, seconds: float = SHORT) -> Holder:
    """The lease of a run on another machine."""
    holder = replace(Holder.this_process(seconds), host="elsewhere", pid=7)
    store.put_bytes(holder.to_bytes(), LEASE_NAME)
    return holder


def test_the_second_is_told_who_has_it(store_place: Place) -> None:
    with take(store_place.store) as first:
        with pytest.raises(OutputError) as error:
            take(store_place.store)
        message = str(error.value)
        assert message.startswith(
            f"{store_place.store.uri}: another run is writing here"
        )
        assert f"process {os.getpid()} on {first.holder.host}" in message
        assert first.holder.started in message
        assert "Wait until it has ended" in message
        first.require_held()
    assert store_place.store.list() == {}  # neither lock nor probe is left
    with take(store_place.store) as third:
        third.require_held()


def test_a_lock_shows_no_secret(store_place: Place) -> None:
    with take(store_place.store):
        assert SECRET.encode() not in store_place.store.read(LEASE_NAME)


@pytest.mark.parametrize("dead", [False, True])
def test_one_of_many_gets_it(store_place: Place, dead: bool) -> None:
    """Whether nobody had it, or one that died."""
    if dead:
        plant(store_place.store, seconds=1.0)
        time.sleep(2.5)

    def attempt(number: int) -> Lease | None:
        try:
            return take(store_place.store, 60)
        except OutputError:
            return None

    with ThreadPoolExecutor(6) as pool:
        leases = [found for found in pool.map(attempt, range(6)) if found]
    assert len(leases) == 1
    leases[0].require_held()
    assert list(store_place.store.list()) == [LEASE_NAME]
    leases[0].release()
    assert store_place.store.list() == {}


def test_a_run_elsewhere_that_renews_is_left_alone(store_place: Place) -> None:
    plant(store_place.store)
    with pytest.raises(OutputError, match="process 7 on elsewhere"):
        take(store_place.store)
    assert list(store_place.store.list()) == [LEASE_NAME]


def test_a_lease_lost_is_noticed(store_place: Place) -> None:
    with take(store_place.store) as first:
        theirs = plant(store_place.store).to_bytes()
        with pytest.raises(OutputError, match="another run took it over"):
            first.require_held()
    assert store_place.store.read(LEASE_NAME) == theirs  # not ours to remove


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_of_this_machine_is_taken_over_at_once(
    tmp_path: Path, number: signal.Signals
) -> None:
    store = LocalStore(str(tmp_path / "out"))
    child = doomed.start("hold_and_wait", store.root)
    try:
        deadline = time.monotonic() + 600
        while store.size(LEASE_NAME) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        with pytest.raises(OutputError, match=f"process {child.pid} on"):
            acquire(store)
        child.send_signal(number)
        while Path(f"/proc/{child.pid}/stat").read_text().split()[2] != "Z":
            time.sleep(0.02)
        began = time.monotonic()  # dead, and not even reaped
        with acquire(store) as mine:
            mine.require_held()
            assert list(store.list()) == [LEASE_NAME]
        assert time.monotonic() - began < lease.LEASE_SECONDS / 2
    finally:
        child.kill()
        child.wait()


def test_a_pid_used_again_is_another_process(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    gone = replace(Holder.this_process(60.0), process_start="1")
    store.put_bytes(gone.to_bytes(), LEASE_NAME)
    with acquire(store) as mine:
        mine.require_held()


def test_a_pid_of_another_container_says_nothing(tmp_path: Path) -> None:
    """Containers of one machine share name and boot, but count processes apart."""
    store = LocalStore(str(tmp_path))
    other = replace(Holder.this_process(60.0), pid=999_999_999, pid_namespace="pid:[1]")
    store.put_bytes(other.to_bytes(), LEASE_NAME)
    with pytest.raises(OutputError, match="process 999999999 on"):
        acquire(store)


def test_it_is_renewed_and_stays_held(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    with take(store, 0.8) as mine:
        before = store.modified_time(LEASE_NAME)
        time.sleep(2.0)
        mine.require_held()
        after = store.modified_time(LEASE_NAME)
        assert before is not None
        assert after is not None
        assert after - before > 0.8


@pytest.mark.parametrize("hours", [-3, 3])
def test_a_clock_that_jumps_makes_no_living_run_look_dead(
    tmp_path: Path, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A jump shows as the difference between the lock's time and the probe's."""
    store = LocalStore(str(tmp_path))
    monkeypatch.setattr(Holder, "is_on_this_machine", lambda self: False)
    with take(store, 2.0) as mine:
        path = tmp_path / LEASE_NAME
        os.utime(path, (time.time() - hours * 3600,) * 2)
        with pytest.raises(OutputError, match="another run is writing here"):
            take(store, 2.0)
        mine.require_held()


def test_a_dead_run_from_the_future_is_taken_over(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    plant(store, seconds=0.4)
    os.utime(tmp_path / LEASE_NAME, (time.time() + 3600,) * 2)
    with take(store) as mine:
        mine.require_held()


def test_a_run_that_slept_longer_than_its_lease_has_lost_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with take(LocalStore(str(tmp_path)), 60) as mine:
        real = lease.boot_clock
        monkeypatch.setattr(lease, "boot_clock", lambda: real() + 61)
        with pytest.raises(OutputError, match="could not be renewed for 61 s"):
            mine.require_held()


def test_a_lock_that_is_removed_by_hand_is_lost(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    with take(store) as mine:
        store.delete([LEASE_NAME])
        with pytest.raises(OutputError, match="its lock file was removed"):
            mine.require_held()


def test_a_lock_that_cannot_be_read_expires_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.4)
    for number, data in enumerate((b"", b"{}", b"[]", b'{"pid": 1}', b"\xff")):
        store = LocalStore(str(tmp_path / str(number)))
        store.put_bytes(data, LEASE_NAME)
        with pytest.raises(OutputError, match="its lock file cannot be read"):
            acquire(store, lease_seconds=SHORT)
        time.sleep(0.5)
        with take(store) as mine:
            mine.require_held()


def test_a_lock_taken_by_a_third_meanwhile_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Judged dead, it was let go at last, and a third began anew."""
    store = LocalStore(str(tmp_path))
    plant(store, seconds=0.4)
    os.utime(tmp_path / LEASE_NAME, (time.time() - 60,) * 2)
    judge = lease.require_idle
    theirs = []

    def judge_slowly(store: Store) -> bytes | None:
        dead = judge(store)
        theirs.append(plant(store, seconds=60.0).to_bytes())
        return dead

    monkeypatch.setattr(lease, "require_idle", judge_slowly)
    with pytest.raises(OutputError, match="another run is writing here"):
        take(store)
    assert store.read(LEASE_NAME) == theirs[0]


def test_a_run_that_sleeps_amid_a_renewal_has_lost_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked, slept, and wrote: another may have come and gone in between."""
    real, slept = lease.boot_clock, [0.0]
    monkeypatch.setattr(lease, "boot_clock", lambda: real() + slept[0])

    class Sleepy(LocalStore):
        def swap(
            self, data: bytes, name: str, *, expected_content: bytes | None
        ) -> bool:
            slept[0] = 61.0
            return LocalStore.swap(self, data, name, expected_content=expected_content)

    with take(LocalStore(str(tmp_path)), 60) as mine:
        mine._store = Sleepy(str(tmp_path))
        mine._renew()
        slept[0] = 0.0
        with pytest.raises(OutputError, match="could not be renewed for 61 s"):
            mine.require_held()


def take_over(store: Store) -> Lease:
    """Takes the lease from a run that is silent, and whose machine is not this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            lease, "require_idle", lambda store: store.read_if_exists(LEASE_NAME)
        )
        patch.setattr(Holder, "is_on_this_machine", lambda self: False)
        return acquire(store, lease_seconds=60)


def test_a_lock_written_again_after_its_holder_slept(tmp_path: Path) -> None:
    """Another run came and went meanwhile; a worker knows nothing but the nonce."""
    awake = LocalStore(str(tmp_path))

    class Sleepy(LocalStore):
        def sleep(self) -> None:
            if not slept:
                slept.append(True)
                with take_over(awake) as other:
                    other.require_held()

        def put_bytes(self, data: bytes, name: str) -> None:
            self.sleep()
            LocalStore.put_bytes(self, data, name)

        def swap(
            self, data: bytes, name: str, *, expected_content: bytes | None
        ) -> bool:
            self.sleep()
            return LocalStore.swap(self, data, name, expected_content=expected_content)

    slept: list[bool] = []
    with take(awake, 60) as mine:
        mine._store = Sleepy(str(tmp_path))
        mine._renew()
        assert slept
        with pytest.raises(OutputError, match="another run took it over"):
            require_holder(awake, mine.holder.nonce)
        with pytest.raises(OutputError, match="another run took it over"):
            mine.require_not_lost()


def test_whoever_slept_before_its_release_removes_nothing(tmp_path: Path) -> None:
    """It looked, slept, and removed: another run has the lease by then."""
    awake, others = LocalStore(str(tmp_path)), list[Lease]()

    class Sleepy(LocalStore):
        def discard(self, name: str, *, expected_content: bytes) -> bool:
            others.append(take_over(awake))
            return LocalStore.discard(self, name, expected_content=expected_content)

    with take(Sleepy(str(tmp_path)), 60):
        pass
    others[0].require_held()
    require_holder(awake, others[0].holder.nonce)
    others[0].release()
    with pytest.raises(OutputError, match="lost its lease"):
        require_holder(awake, others[0].holder.nonce)


@pytest.mark.parametrize("host", ["here", "elsewhere"])
def test_only_a_lease_that_is_surely_dead_is_removed_unasked(
    store_place: Place, host: str
) -> None:
    store = store_place.store
    lease.remove_dead_lease(store)
    holder = replace(Holder.this_process(60.0), process_start="1")
    if host == "elsewhere":
        holder = plant(store)
    store.put_bytes(holder.to_bytes(), LEASE_NAME)
    lease.remove_dead_lease(store)
    assert (store.size(LEASE_NAME) is None) == (host == "here")


def test_a_renewal_whose_answer_was_lost_is_no_loss(tmp_path: Path) -> None:
    class Lossy(LocalStore):
        def swap(
            self, data: bytes, name: str, *, expected_content: bytes | None
        ) -> bool:
            assert LocalStore.swap(self, data, name, expected_content=expected_content)
            raise OutputError("no answer")

    store = LocalStore(str(tmp_path))
    with take(store, 60) as mine:
        mine._store = Lossy(str(tmp_path))
        for _ in range(2):
            with pytest.raises(OutputError, match="no answer"):
                mine._renew()
        mine.require_held()
    assert store.list() == {}


def child_releases(mine: Lease, done: multiprocessing.Queue[bool]) -> None:
    mine.release()
    done.put(True)


def test_a_forked_child_does_not_release_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    done = context.Queue()
    with take(LocalStore(str(tmp_path))) as mine:
        child = context.Process(target=child_releases, args=(mine, done))
        child.start()
        assert done.get(timeout=600)
        child.join(600)
        mine.require_held()


def test_without_exclusive_swaps_the_last_writer_has_it(tmp_path: Path) -> None:
    """As documented: written, then read again after a pause."""

    class Overwriting(LocalStore):
        @property
        def swaps_exclusively(self) -> bool:
            return False

        def swap(
            self, data: bytes, name: str, *, expected_content: bytes | None
        ) -> bool:
            if self.read_if_exists(name) != expected_content:
                return False
            time.sleep(0.2)  # all have looked, nobody has written
            self.put_bytes(data, name)
            return True

    store = Overwriting(str(tmp_path))

    def attempt(number: int) -> Lease | None:
        try:
            return acquire(store, settle_seconds=1.0)
        except OutputError:
            return None

    with ThreadPoolExecutor(4) as pool:
        leases = [found for found in pool.map(attempt, range(4)) if found]
    assert len(leases) == 1
    leases[0].require_held()
    leases[0].release()
