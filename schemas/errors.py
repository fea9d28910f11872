"""Errors that a person can fix; each message has a location, the problem and the fix.

Each class has a kind, which programs read in JSON and in events. Each kind has an exit
status, by which schedules decide whether to try again. Kinds with an equivalent in
sysexits.h have the status from that file, so that systemd shows the name.
"""

from __future__ import annotations

import errno
from typing import ClassVar, Final, Literal

OTHER, USAGE, DATA, OUTPUT = "other", "usage", "data", "output"
NO_ROOM, BUSY, INTERRUPTED = "no_room", "busy", "interrupted"

# For a signal, the exit status is 128 plus the number of the signal, as in shells.
EXIT_STATUS: Final = {OTHER: 1, USAGE: 2, DATA: 65, OUTPUT: 73, NO_ROOM: 74, BUSY: 75}
KINDS: Final = (*EXIT_STATUS, INTERRUPTED)
# Kinds for which the same run fails again until a person changes something.
PERMANENT_KINDS: Final = (USAGE, DATA, OUTPUT)

# Error numbers for a full disk, a full quota, and the limit of a file's size.
FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class RecordmillError(Exception):
    """The base class of errors that the input, the job or the storage causes.

    Raise it with a message for people. Any other exception that escapes is a bug.
    """

    kind: ClassVar[str] = OTHER  # what the error is about, for programs
    # format of the log that already has an event about it, so that it is not shown again;
    # "" if there is none
    logged_format: Literal["", "text", "json"] = ""


class UsageError(RecordmillError):
    """An error in the command or in the job."""

    kind = USAGE


class InputError(RecordmillError):
    """An error in the input: it cannot be read in the expected format."""

    kind = DATA


class UnreachableInputError(InputError):
    """A failure of the storage to return input; trying again may help."""

    kind = OTHER


class ChangedInputError(InputError):
    """A change of the input while a run reads it; trying again may help."""

    kind = BUSY


class SchemaError(RecordmillError):
    """A mismatch between a column and its declared feature."""

    kind = DATA


class OutputError(RecordmillError):
    """An output folder that cannot be used, or an incomplete output."""


class OutputRefusedError(OutputError):
    """Existing content of the output that must not be replaced; a person must decide."""

    kind = OUTPUT


class BusyError(OutputError):
    """A conflict with another run that writes to the output; trying again may help."""

    kind = BUSY


class NoRoomError(OutputError):
    """A disk or a quota that is full, or that the output would fill."""

    kind = NO_ROOM


class MissingDatasetError(OutputError):
    """A missing dataset in the folder that a command reads."""

    kind = DATA


class ReplacedDatasetError(OutputError):
    """A dataset was replaced during a read, and its files were removed since."""

    kind = BUSY


class MissingFileError(OutputError):
    """A missing file in the output."""


class RejectLimitError(RecordmillError):
    """A number of rejects above the limit of the job."""

    kind = DATA


class CorruptRecordError(RecordmillError):
    """A damaged TFRecord file.

    Attributes:
      record_index: zero-based index of the first damaged record.
      offset: byte offset of that record's frame in the (uncompressed) file.
    """

    def __init__(self, uri: str, record_index: int, offset: int, problem: str) -> None:
        super().__init__(f"{uri}: record {record_index} at byte {offset}: {problem}")
        self.uri, self.record_index = uri, record_index
        self.offset, self.problem = offset, problem

    def __reduce__(self) -> tuple[type, tuple[str, int, int, str]]:
        return type(self), (self.uri, self.record_index, self.offset, self.problem)


class DamagedScratchError(RecordmillError):
    """Damaged scratch of an earlier try; it is discarded, and written again."""


class WorkerDiedError(RecordmillError):
    """The end of a worker process during a run; the runner would wait for it forever."""


class RowsError(RecordmillError):
    """Rows of a batch that do not fit a feature, with a reason for each row index."""

    kind = DATA

    def __init__(self, errors: dict[int, str]) -> None:
        row, reason = next(iter(errors.items()))
        more = f" (and {len(errors) - 1} more rows)" if len(errors) > 1 else ""
        super().__init__(f"row {row}: {reason}{more}")
        self.errors = errors  # at least one, ascending

    def __reduce__(self) -> tuple[type, tuple[dict[int, str]]]:
        return type(self), (self.errors,)


class Interrupted(BaseException):
    """A request to end the process; only the outermost code may catch it."""

    # format of the log that already has an event about it, or ""
    logged_format: Literal["", "text", "json"] = ""

    def __init__(self, number: int, name: str) -> None:
        super().__init__(number, name)
        self.number, self.name = number, name  # of the signal, like 15 and SIGTERM
        # progress of an interrupted run and how to resume it, or ""
        self.progress = ""

    def __str__(self) -> str:
        """Returns the name of the signal, and the progress of the run if known."""
        return ": ".join(filter(None, (f"interrupted by {self.name}", self.progress)))

    def to_sentence(self) -> str:
        """Returns the message as a sentence, which begins with a capital letter."""
        text = str(self)
        return text[0].upper() + text[1:]

    @property
    def status(self) -> int:
        """Returns the exit status, as in shells."""
        return 128 + self.number


_CLASSES_BY_KIND = {
    error_class.kind: error_class
    for error_class in (
        UsageError,
        InputError,
        OutputRefusedError,
        BusyError,
        NoRoomError,
    )
}


def error_kind(error: BaseException) -> str:
    """Returns the kind of an error; `other` for most that are no RecordmillError."""
    if isinstance(error, KeyboardInterrupt | Interrupted):
        return INTERRUPTED
    kind = error.kind if isinstance(error, RecordmillError) else OTHER
    seen_errors: list[BaseException] = []
    cause: BaseException | None = error
    while kind == OTHER and cause is not None and cause not in seen_errors:
        if isinstance(cause, OSError) and cause.errno in FULL_ERRNOS:
            return NO_ROOM
        seen_errors.append(cause)
        cause = cause.__cause__
    return kind


def create_error(kind: str, message: str) -> RecordmillError:
    """Returns an error of this kind, to raise an error of another process again."""
    return _CLASSES_BY_KIND.get(kind, RecordmillError)(message)


def exit_status(error: BaseException) -> int:
    """Returns the exit status of the command for an error."""
    if isinstance(error, Interrupted):
        return error.status
    if isinstance(error, KeyboardInterrupt):
        return 130
    return EXIT_STATUS[error_kind(error)]
