"""Notes samples and files that are odd, and tells of them at the end of a run."""

from __future__ import annotations

from collections.abc import Sequence

from recordmill.schemas.ranges import OddRows, TypeFlags
from recordmill.schemas.text import count
from recordmill.transforms.pictures.image_header import ImageHeader
from recordmill.transforms.sources.images.decodability import (
    observe,
    type_flags,
    warn_by_content,
)

LEFT_OUT = "file of no sample"
AGAIN = "key that came before"


def warnings_of(odd: Sequence[OddRows]) -> tuple[str, ...]:
    """Returns what was odd, in words."""
    pictures = [each for each in odd if each.kind not in (LEFT_OUT, AGAIN)]
    warnings = warn_by_content(pictures)
    for each in odd:
        if each.kind == LEFT_OUT:
            warnings.append(
                f"{count(each.rows, 'file')} in shards passed over, such as "
                f"{each.example}: a name without a part behind a dot, or with __ "
                "around it, belongs to no sample"
            )
        if each.kind == AGAIN:
            warnings.append(
                f"{count(each.rows, 'sample')} with a key that came before in the "
                f"shard, such as {each.example}: each is a record of its own. If "
                "files of one sample lie apart, write the shard again with tar "
                "--sort=name"
            )
    return tuple(warnings)


def observe_pictures(
    pictures: Sequence[str],
    headers: Sequence[dict[str, ImageHeader]],
    names: Sequence[str],
) -> tuple[TypeFlags, tuple[OddRows, ...]]:
    """Returns whether readers decode the pictures of each column, and which they do not.

    Args:
      pictures: the columns.
      headers: of the pictures of each sample, by column.
      names: of the samples.
    """
    flags, odd = [], []
    for picture in pictures:
        found = [
            (each[picture].kind, name)
            for each, name in zip(headers, names, strict=True)
            if picture in each
        ]
        kinds = [kind for kind, _ in found]
        undecodable = observe(kinds, [name for _, name in found])
        flags.append((*type_flags(kinds, undecodable), 0)[0])
        odd.append(undecodable)
    return tuple(flags), OddRows.merged(odd)
