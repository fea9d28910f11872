"""Reports to Beam's lineage what a pipeline reads and writes, as Beam's file systems do."""

from __future__ import annotations

from apache_beam.metrics.metric import Lineage

from recordmill.transforms.storage.reading import full_uri, is_local

_SYSTEMS = {"gs": "gcs", "az": "abs", "abfs": "abs", "abfss": "abs"}


def report_lineage(*, source: str = "", sink: str = "") -> None:
    """Adds folders to the lineage of the pipeline whose step calls it."""
    for lineage, uri in ((Lineage.sources(), source), (Lineage.sinks(), sink)):
        if not uri:
            continue
        scheme, _, rest = uri.rstrip("/").partition("://")
        segments = list(filter(None, rest.split("/", 1)))
        system = _SYSTEMS.get(scheme, scheme)
        if is_local(uri):
            system, segments = "filesystem", ["localhost", full_uri(uri)]
        lineage.add(system, *segments, last_segment_sep="/")
