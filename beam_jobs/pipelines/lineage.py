"""Reports the inputs and the output of a pipeline to Beam's lineage.

The names match the names that Beam's own file systems report.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from apache_beam.metrics.metric import Lineage

from recordmill.transforms.storage.reading import full_uri, is_local

_SYSTEM_BY_SCHEME = {"gs": "gcs", "az": "abs", "abfs": "abs", "abfss": "abs"}


def report_lineage(*, sources: Sequence[str] = (), range_findings: str = "") -> None:
    """Adds folders to the lineage of the pipeline whose step calls this function."""
    for uris, lineage in (
        (sources, Lineage.sources()),
        ([range_findings], Lineage.sinks()),
    ):
        for uri in filter(None, uris):
            if place := _lineage_segments(uri):
                lineage.add(*place, last_segment_sep="/")


def _lineage_segments(uri: str) -> tuple[str, ...]:
    """Returns the system and its segments; () if a container's account is unknown."""
    if is_local(uri):
        return "filesystem", "localhost", full_uri(uri)
    scheme, _, address = uri.rstrip("/").partition("://")
    system, segments = (
        _SYSTEM_BY_SCHEME.get(scheme, scheme),
        list(filter(None, address.split("/", 1))),
    )
    if system == "abs":  # az://container/path, abfs://container@account.host/path
        container, _, host = segments[0].partition("@")
        account = host.split(".")[0] or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
        segments[:1] = [account, container]
    return (system, *segments) if all(segments) else ()
