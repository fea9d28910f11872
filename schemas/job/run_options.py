"""Defines RunOptions, how a job is run, and ReportOptions, where it reports to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recordmill.schemas.job.spell_options import Style
from recordmill.schemas.job.storage_options import (
    BothSides,
    require_secretless_arguments,
)

_EMBEDDED_RUNNERS = (
    "direct",
    "directrunner",
    "bundlebaseddirectrunner",
    "switchingdirectrunner",
    "fnapirunner",
)

_NO_STORAGE_OPTIONS = BothSides()

WantedExchange = Literal["auto", "reference", "scratch", "engine"]
Grace = Literal["next-run", "0"]
Duplicates = Literal["ignore", "report", "fail"]
VerifyLevel = Literal["quick", "full"]
LogFormat = Literal["text", "json"]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The part of a job that says how it is run; none of it changes a byte.

    Attributes:
      inputs: files, folders or globs.
      output: folder of the dataset.
      exclude: globs of what is left out of the inputs.
      scratch: directory for temporary sorted files; empty means inside the output.
      memory: what sorted records may take of it, on the embedded runner, before they go
        to scratch: a size, 0, or auto.
      exchange: how records reach the writers of their shards.
      workers: threads of the embedded runner; 0 means all cores.
      overwrite: replace a dataset that differs.
      grace: how long the files of a replaced dataset stay for those who read it.
      append: convert only inputs that the dataset was not made from, and add them to it.
      auto_version: publish each change as the next version, in a folder of its own
        inside the output.
      keep: versions to keep then; 0 keeps all.
      verify: what is checked before a dataset is published: quick looks at names,
        sizes, counts and checksums that the store keeps, full reads every byte again.
      duplicates: what is done about records with equal content in several splits: ignore
        does not look for them, report tells, fail publishes nothing.
      expect_schema: schema file or dataset that the new dataset must keep to.
      storage: non-secret options of the inputs' and the output's storage.
      detach: submit the job to the runner and do not wait for its end.
      beam_args: pipeline options as Beam spells them.

    Raises:
      UsageError: a pipeline option is named like a secret.
    """

    inputs: tuple[str, ...]
    output: str
    exclude: tuple[str, ...] = ()
    scratch: str = ""
    memory: str = "auto"
    exchange: WantedExchange = "auto"
    workers: int = 0
    overwrite: bool = False
    grace: Grace = "next-run"
    append: bool = False
    auto_version: bool = False
    keep: int = 0
    verify: VerifyLevel = "quick"
    duplicates: Duplicates = "ignore"
    expect_schema: str = ""
    storage: BothSides = _NO_STORAGE_OPTIONS
    detach: bool = False
    beam_args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_secretless_arguments(self.beam_args)

    @property
    def is_embedded(self) -> bool:
        """Tests whether the job runs in this process, on Beam's embedded runner.

        >>> RunOptions((), "out", beam_args=("--runner", "FlinkRunner")).is_embedded
        False
        """
        runner: str | None = None
        for index, arg in enumerate(self.beam_args):
            name, equals, value = arg.partition("=")
            if name == "--runner":
                runner = value if equals else "".join(self.beam_args[index + 1 :][:1])
        return is_embedded_runner(runner)


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Where a run reports to.

    Attributes:
      as_json: print the summary as one object to stdout.
      metrics_file: Prometheus textfile, or "".
      log_format: log lines on stderr instead of bars and summary, or None.
      style: how messages spell options.
    """

    as_json: bool = False
    metrics_file: str = ""
    log_format: LogFormat | None = None
    style: Style = "command"


def is_embedded_runner(name: str | None) -> bool:
    """Returns whether a runner's name, or none at all, means Beam's embedded runner.

    >>> is_embedded_runner("apache_beam.runners.direct.DirectRunner")
    True
    """
    return name is None or name.rpartition(".")[2].lower() in _EMBEDDED_RUNNERS
