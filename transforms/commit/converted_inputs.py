"""Lists the inputs of a finished run by their content, which names its dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain

from recordmill.schemas.dataset.shards import ShardResult
from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.ranges import RangeFile, RangeResult
from recordmill.transforms.commit.input_log import KeptInputs, dump_kept
from recordmill.transforms.file_content import contents
from recordmill.transforms.tasks.checkpoints import CHECKPOINTS, discard_checkpoint
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.fingerprint import (
    FORMAT_VERSION,
    appended_fingerprint,
    fingerprint_of,
    fixed_fields,
)
from recordmill.transforms.tasks.kept_checksums import load_checksums


@dataclass(frozen=True, slots=True)
class ConvertedInputs:
    """The inputs of a finished run.

    Attributes:
      fingerprint: of the dataset.
      by_content: the bytes of inputs.jsonl.gz.
      as_listed: the bytes of inventory.jsonl.gz.
      contents: of what was read of each file, by path; None if it is not known.
    """

    fingerprint: str
    by_content: bytes
    as_listed: bytes
    contents: Mapping[str, str] | None


def list_converted(
    context: RunContext,
    listed: KeptInputs,
    ranges: Sequence[RangeResult],
    shards: Sequence[ShardResult],
) -> ConvertedInputs:
    """Lists the inputs of a run by the checksums of what its tasks read.

    Args:
      context: the run.
      listed: its inventory.
      ranges: the results of all ranges.
      shards: those of all shards.

    Raises:
      ChangedInputError: something was read twice and was not the same.
    """
    found = _contents(context, listed, ranges, shards)
    files = _files(listed, found, sides=False)
    side_files = _files(listed, found, sides=True)
    if context.base:
        fingerprint = appended_fingerprint(
            context.base, files, side_files, reading=context.reading
        )
    else:
        fingerprint = fingerprint_of(
            context.job, files, side_files, reading=context.reading
        )
    if found is None:
        fingerprint = context.run_key
    as_listed = replace(
        listed,
        format_version=FORMAT_VERSION,
        fingerprint=fingerprint,
        job=fixed_fields(context.job),
        run_key=context.run_key,
    )
    by_content = replace(as_listed, by_content=found is not None, run_key="")
    with ThreadPoolExecutor(1, "pack-inventory") as other:
        packed = other.submit(dump_kept, as_listed)
        return ConvertedInputs(
            fingerprint, dump_kept(by_content, found), packed.result(), found
        )


def _contents(
    context: RunContext,
    listed: KeptInputs,
    ranges: Sequence[RangeResult],
    shards: Sequence[ShardResult],
) -> dict[str, str] | None:
    """Returns the content of each file that was read; None if it is not known."""
    if not context.source.tells_checksums:
        return None
    results = chain(
        (result.checksums for result in ranges), (shard.checksums for shard in shards)
    )
    checksums = load_checksums(context.workspace, results)
    if checksums is None:
        return None
    sizes = {path: file.size for path, file in listed.files.items()}
    try:
        return contents(checksums, sizes)
    except ChangedInputError:
        forget_what_was_read(context)
        raise


def forget_what_was_read(context: RunContext) -> None:
    """Discards the checkpoints of all ranges and shards, so that all is read again."""
    for name in context.workspace.names(CHECKPOINTS):
        if name.startswith(("range-", "shard-")) and name.endswith(".json"):
            discard_checkpoint(context.workspace, name.removesuffix(".json"))


def _files(
    listed: KeptInputs, found: Mapping[str, str] | None, *, sides: bool
) -> list[RangeFile]:
    """Returns the inputs, or the files that cells may name, with their content.

    Args:
      listed: the inventory.
      found: the content of each file that was read; None leaves the versions.
      sides: which of both.
    """
    files = [each for each in listed.files.items() if each[1].is_side == sides]
    if found is None:
        return [RangeFile(path, file.size, file.version or "") for path, file in files]
    return [RangeFile(path, file.size, found.get(path, "")) for path, file in files]
