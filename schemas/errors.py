"""Errors a person can act on: where it happened, what was found, and the way out."""

from __future__ import annotations


class RecordmillError(Exception):
    """Base of every error that is the input's, the job's or the storage's fault.

    Raise it with a message for people; anything else that escapes is a bug.
    """


class UsageError(RecordmillError):
    """The command or the job is wrong (exit status 2)."""


class InputError(RecordmillError):
    """Input that cannot be read as the format it should be."""


class SchemaError(RecordmillError):
    """A column does not fit the feature it is declared for."""


class OutputError(RecordmillError):
    """The output folder cannot be used, or what was written is not whole."""


class MissingFileError(OutputError):
    """A file that should be in the output is not there."""


class RejectLimitError(RecordmillError):
    """More rows were rejected than the job allows."""


class CorruptRecordError(RecordmillError):
    """A TFRecord file that is damaged.

    Attributes:
      uri: the file.
      record_index: zero-based index of the first damaged record.
      offset: byte offset of that record's frame in the (uncompressed) file.
    """

    def __init__(self, uri: str, record_index: int, offset: int, what: str) -> None:
        super().__init__(f"{uri}: record {record_index} at byte {offset}: {what}")
        self.uri = uri
        self.record_index = record_index
        self.offset = offset
        self.what = what

    def __reduce__(self) -> tuple[type, tuple[str, int, int, str]]:
        return type(self), (self.uri, self.record_index, self.offset, self.what)


class DamagedScratchError(RecordmillError):
    """Scratch of an earlier try that is damaged; it was forgotten, to be made again."""


class RowsError(RecordmillError):
    """Rows of a batch that a feature cannot hold.

    Attributes:
      rows: zero-based row indices in the batch, ascending.
      reasons: one reason for each of the rows.
    """

    def __init__(self, rows: list[int], reasons: list[str]) -> None:
        more = f" (and {len(rows) - 1} more rows)" if len(rows) > 1 else ""
        super().__init__(f"row {rows[0]}: {reasons[0]}{more}")
        self.rows = rows
        self.reasons = reasons

    def __reduce__(self) -> tuple[type, tuple[list[int], list[str]]]:
        return type(self), (self.rows, self.reasons)
