"""Errors a person can act on: where it happened, what was found, and the way out.

Each class has a kind, which programs read (in JSON and in events), and each kind an exit
status, by which schedules decide whether to try again. The statuses of kinds that have a
name in sysexits.h are the ones of that file, so that systemd shows the name.
"""

from __future__ import annotations

import errno
from typing import ClassVar, Final, Literal

OTHER, USAGE, DATA, OUTPUT = "other", "usage", "data", "output"
NO_ROOM, BUSY, INTERRUPTED = "no_room", "busy", "interrupted"

# Of a signal it is 128 and the signal's number, as shells have it.
EXIT_STATUS: Final = {OTHER: 1, USAGE: 2, DATA: 65, OUTPUT: 73, NO_ROOM: 74, BUSY: 75}
KINDS: Final = (*EXIT_STATUS, INTERRUPTED)
# The same run fails again, until a person has changed something.
PERMANENT: Final = (USAGE, DATA, OUTPUT)

# A disk, a quota, or the size that a file may have.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class RecordmillError(Exception):
    """Base of every error that is the input's, the job's or the storage's fault.

    Raise it with a message for people; anything else that escapes is a bug.
    """

    kind: ClassVar[str] = OTHER  # what the error is about, for programs
    # format of the log that has an event about it, so that it is not shown again; or ""
    in_log: Literal["", "text", "json"] = ""


class UsageError(RecordmillError):
    """The command or the job is wrong."""

    kind = USAGE


class InputError(RecordmillError):
    """Input that cannot be read as the format it should be."""

    kind = DATA


class UnreachableInputError(InputError):
    """Input that its storage does not give now; trying again may help."""

    kind = OTHER


class ChangedInputError(InputError):
    """Input that somebody changes while a run reads it; that may be over soon."""

    kind = BUSY


class SchemaError(RecordmillError):
    """A column does not fit the feature it is declared for."""

    kind = DATA


class OutputError(RecordmillError):
    """The output folder cannot be used, or what was written is not whole."""


class OutputRefusedError(OutputError):
    """What lies in the output is in the way; a person has to decide."""

    kind = OUTPUT


class BusyError(OutputError):
    """Another run writes to the output; it may be over soon."""

    kind = BUSY


class NoRoomError(OutputError):
    """A disk or a quota is full, or will be."""

    kind = NO_ROOM


class MissingDatasetError(OutputError):
    """There is no dataset where a command is to read one."""

    kind = DATA


class MissingFileError(OutputError):
    """A file that should be in the output is not there."""


class RejectLimitError(RecordmillError):
    """More rows were rejected than the job allows."""

    kind = DATA


class CorruptRecordError(RecordmillError):
    """A TFRecord file that is damaged.

    Attributes:
      record_index: zero-based index of the first damaged record.
      offset: byte offset of that record's frame in the (uncompressed) file.
    """

    def __init__(self, uri: str, record_index: int, offset: int, what: str) -> None:
        super().__init__(f"{uri}: record {record_index} at byte {offset}: {what}")
        self.uri, self.record_index = uri, record_index
        self.offset, self.what = offset, what

    def __reduce__(self) -> tuple[type, tuple[str, int, int, str]]:
        return type(self), (self.uri, self.record_index, self.offset, self.what)


class DamagedScratchError(RecordmillError):
    """Scratch of an earlier try that is damaged; it was forgotten, to be made again."""


class WorkerDiedError(RecordmillError):
    """A worker ended during the run; the runner itself would wait for it for ever."""


class RowsError(RecordmillError):
    """Rows of a batch that a feature cannot hold: the reason of each, by its index."""

    kind = DATA

    def __init__(self, errors: dict[int, str]) -> None:
        row, reason = next(iter(errors.items()))
        more = f" (and {len(errors) - 1} more rows)" if len(errors) > 1 else ""
        super().__init__(f"row {row}: {reason}{more}")
        self.errors = errors  # at least one, ascending

    def __reduce__(self) -> tuple[type, tuple[dict[int, str]]]:
        return type(self), (self.errors,)


class Interrupted(BaseException):
    """The process was told to end; no code but the outermost may stop it."""

    # format of the log that has an event about it; or ""
    in_log: Literal["", "text", "json"] = ""

    def __init__(self, number: int, name: str) -> None:
        super().__init__(number, name)
        self.number, self.name = number, name  # of the signal, like 15 and SIGTERM
        # what was done and how to resume, if it was a run that was interrupted
        self.state = ""

    def __str__(self) -> str:
        """Returns the message for people."""
        return ": ".join(filter(None, (f"interrupted by {self.name}", self.state)))

    def for_people(self) -> str:
        """Returns the message as a sentence."""
        text = str(self)
        return text[0].upper() + text[1:]

    @property
    def status(self) -> int:
        """Returns the exit status, as shells have it."""
        return 128 + self.number


_RAISED_FOR = {
    each.kind: each
    for each in (UsageError, InputError, OutputRefusedError, BusyError, NoRoomError)
}


def kind_of(error: BaseException) -> str:
    """Returns what an error is about; `other` for one that is no RecordmillError."""
    if isinstance(error, KeyboardInterrupt | Interrupted):
        return INTERRUPTED
    kind = error.kind if isinstance(error, RecordmillError) else OTHER
    seen: list[BaseException] = []
    each: BaseException | None = error
    while kind == OTHER and each is not None and each not in seen:
        if isinstance(each, OSError) and each.errno in FULL:
            return NO_ROOM
        seen.append(each)
        each = each.__cause__
    return kind


def error_of(kind: str, message: str) -> RecordmillError:
    """Returns an error of a kind, like one that happened in another process."""
    return _RAISED_FOR.get(kind, RecordmillError)(message)


def exit_status(error: BaseException) -> int:
    """Returns the status with which the command ends because of an error."""
    if isinstance(error, Interrupted):
        return error.status
    if isinstance(error, KeyboardInterrupt):
        return 130
    return EXIT_STATUS[kind_of(error)]
