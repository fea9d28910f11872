"""Tells of rows of a pipeline that became no record."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

from recordmill.schemas.errors import RejectLimitError
from recordmill.transforms.rows.row_summary import Digest, RowsSummary, add_digests

_SHOWN_BYTES = 300

RejectLine = tuple[Digest, bytes]
"""A reject as a line of JSON, and its digest."""


def reject_limit_error(rows: str, limit: str, line: bytes) -> RejectLimitError:
    """Makes the error of too many rejects, which shows one of them."""
    reject = json.loads(line)
    raw = base64.b64decode(reject["raw"])
    shown = raw[:_SHOWN_BYTES].decode(errors="backslashreplace")
    more = "..." if len(raw) > _SHOWN_BYTES else ""
    return RejectLimitError(
        f"{rows} rejected (limit {limit}). One of them: {reject['reason']}: "
        f"{shown}{more}\nFix the rows or raise max_rejects"
    )


def summarize_rejects(rejects: Sequence[RejectLine]) -> RowsSummary:
    """Summarizes rows that were rejected."""
    digest = (0, 0)
    for own, _ in rejects:
        digest = add_digests(digest, own)
    shown = min((line for _, line in rejects), default=b"")
    return RowsSummary(len(rejects), len(rejects), digest, reject=shown)


def reject_line(reason: str, raw: bytes) -> bytes:
    """Makes a line of a rejects file; a pipeline's row has no URI and no position."""
    line = {
        "uri": None,
        "position": None,
        "reason": reason,
        "raw": base64.b64encode(raw).decode(),
    }
    return json.dumps(line, ensure_ascii=False).encode(errors="backslashreplace")
