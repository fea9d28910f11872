"""Writes a run's metrics as a Prometheus textfile, for node_exporter's collector.

It is written in one step when the run ends, with success or not, so an alert can tell a
job that fails (recordmill_last_run_success 0) from one that no longer runs (its time
no longer changes).
Source: the text exposition format 0.0.4 of Prometheus.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from recordmill.beam_jobs.service.outcome import Outcome
from recordmill.schemas.errors import OutputError, UsageError
from recordmill.schemas.input_summary import Understood
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.names import REJECTS_NAME
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.storage.atomic_files import write_atomic
from recordmill.transforms.storage.reading import is_local, local_path
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.finished_tasks import FinishedTasks

MAX_REASONS = 20  # series of rejects; the rarer reasons are "other"
_LAST_SUCCESS = "recordmill_last_success_timestamp_seconds"

_Sample = tuple[Mapping[str, str], float]
_Family = tuple[str, str, list[_Sample]]  # name, help, samples


class Stages:
    """A reporter that notes how long the stages of a run took.

    The checkpoints of finished tasks show when the last range was read and the last shard
    written; `end` comes before they are removed.
    """

    def __init__(self) -> None:
        self._started = self._begun = time.time()
        self._finished: FinishedTasks | None = None
        self.seconds: dict[str, float] = {}

    def doing(self, stage: str, what: str) -> None:
        pass

    def tell(self, understood: Understood) -> None:
        pass

    def begin(
        self, context: RunContext, ranges: Sequence[InputRange], input_bytes: int
    ) -> None:
        self._begun = time.time()
        self._finished = FinishedTasks(context.workspace)
        self.seconds["prepare"] = self._begun - self._started

    def poll(self) -> None:
        # On this machine the files themselves tell when they were written.
        if self._finished is not None and self._finished.in_store:
            self._finished.look()

    def end(self) -> None:
        if self._finished is None:
            return
        before = self._begun
        self._finished.look(now=True)
        finished = self._finished.times()
        # What an earlier try finished took none of this run's time.
        for stage, prefix in (("read", "range"), ("write", "shard")):
            times = [at for name, at in finished.items() if name.startswith(prefix)]
            done = max([before, *times])
            self.seconds[stage] = done - before
            before = done
        self.seconds["publish"] = max(0.0, time.time() - before)


def require_metrics_file(file: str) -> None:
    """Makes sure before the run that its metrics can be written after it.

    Raises:
      UsageError: no local file, or its folder is not there.
    """
    if not is_local(file):
        raise UsageError(f"`metrics_file`: {file} is not a local file")
    folder = local_path(file).absolute().parent
    if not folder.is_dir():
        raise UsageError(
            f"`metrics_file`: {file}: no such folder: {folder}; create it first"
        )


def write_metrics(
    file: str,
    dataset: str,
    seconds: float,
    outcome: Outcome | None,
    stages: Mapping[str, float],
) -> None:
    """Writes the metrics of a run that ended.

    Args:
      file: the textfile; that of the last run is replaced in one step.
      dataset: its name; "" if the job could not even be read.
      seconds: how long it took.
      outcome: how it ended; None if it failed.
      stages: seconds of each stage, as far as the run came.

    Raises:
      OutputError: the file cannot be written.
    """
    path = local_path(file)
    last_dataset, last_success = _last_success(path)
    dataset = dataset or last_dataset
    now = time.time()
    families = _run_families(outcome, now, seconds, stages)
    success = now if outcome else last_success
    if success:
        what = "when a run last ended well"
        families.append((_LAST_SUCCESS, what, [({}, success)]))
    if outcome:
        rejects = Path(outcome.output, REJECTS_NAME)
        families += _dataset_families(outcome.manifest, count_reasons(rejects))
    text = "".join(_lines(families, {"dataset": dataset}))
    try:
        write_atomic(path, text.encode())
    except OSError as error:
        raise OutputError(
            f"{file}: cannot write the metrics: {error.strerror}"
        ) from error


def _run_families(
    outcome: Outcome | None, now: float, seconds: float, stages: Mapping[str, float]
) -> list[_Family]:
    status = outcome.status if outcome else "failed"
    return [
        (
            "recordmill_last_run_success",
            "whether the last run ended well",
            [({}, float(outcome is not None))],
        ),
        (
            "recordmill_last_run_status",
            "how the last run ended: done, unchanged or failed",
            [({"status": status}, 1.0)],
        ),
        ("recordmill_last_run_timestamp_seconds", "when it ended", [({}, now)]),
        ("recordmill_last_run_seconds", "how long it took", [({}, seconds)]),
        (
            "recordmill_last_run_stage_seconds",
            "how long its stages took",
            [({"stage": stage}, time) for stage, time in stages.items()],
        ),
    ]


def _dataset_families(manifest: Manifest, reasons: Mapping[str, int]) -> list[_Family]:
    splits = manifest.splits.items()
    skews: list[_Sample] = []
    for name, split in splits:
        sizes = [shard.bytes for shard in split.shards]
        if sizes:
            skews.append(({"split": name}, max(sizes) / max(1, min(sizes))))
    label = {"version": manifest.version, "fingerprint": manifest.fingerprint}
    return [
        ("recordmill_dataset_info", "the dataset published", [(label, 1.0)]),
        ("recordmill_rows_read", "rows found", [({}, float(manifest.rows_read))]),
        (
            "recordmill_rows_written",
            "records of each split",
            [({"split": name}, float(split.records)) for name, split in splits],
        ),
        (
            "recordmill_rows_rejected",
            "rows left out",
            [({}, float(manifest.rows_rejected))],
        ),
        (
            "recordmill_rows_rejected_by_reason",
            "rows left out, by what was wrong",
            [({"reason": reason}, float(n)) for reason, n in reasons.items()],
        ),
        (
            "recordmill_bytes",
            "bytes of each split's shards",
            [({"split": name}, float(split.bytes)) for name, split in splits],
        ),
        (
            "recordmill_shards",
            "shards of each split",
            [({"split": name}, float(len(split.shards))) for name, split in splits],
        ),
        (
            "recordmill_shard_skew",
            "bytes of the largest shard by those of the smallest",
            skews,
        ),
    ]


def count_reasons(rejects: Path) -> dict[str, int]:
    """Counts the rejected rows for each class of reasons, most frequent first."""
    counts: Counter[str] = Counter()
    for file in sorted(rejects.glob("*.jsonl")):
        with file.open(encoding="utf-8") as lines:
            counts.update(reason_class(json.loads(line)["reason"]) for line in lines)
    most = dict(counts.most_common(MAX_REASONS))
    rest = counts.total() - sum(most.values())
    return most | ({"other": rest} if rest else {})


# What differs from row to row: quoted texts, bytes, lists and numbers.
_DETAILS = re.compile(
    r"b?'(?:[^'\\]|\\.)*'|b?\"(?:[^\"\\]|\\.)*\"|\[[^\]]*\]|-?\d[\d.,]*"
)


def reason_class(reason: str) -> str:
    """Returns a reason without what belongs to one row alone, so that series stay few.

    >>> reason_class("labels [12] for label, expected below [10]")
    'labels # for label, expected below #'
    """
    return _DETAILS.sub("#", reason)[:120]


def _lines(families: Iterable[_Family], common: Mapping[str, str]) -> Iterator[str]:
    for name, what, samples in families:
        if not samples:
            continue
        yield f"# HELP {name} {what}\n# TYPE {name} gauge\n"
        for labels, value in samples:
            pairs = {**common, **labels}.items()
            inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in pairs)
            yield f"{name}{{{inside}}} {value:.17g}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _last_success(path: Path) -> tuple[str, float]:
    """Returns the dataset and the time of the last good run, from the old file."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError):
        return "", 0.0
    dataset = re.search(r'^recordmill_\w+\{dataset="(\w*)"', text, re.MULTILINE)
    success = re.search(rf"^{_LAST_SUCCESS}\{{.*\}} (\S+)$", text, re.MULTILINE)
    return (dataset[1] if dataset else ""), (float(success[1]) if success else 0.0)
